// SPDX-License-Identifier: Apache-2.0
// In place of base/cpu_detect.cpp: a processor with the dot products of bf16 has tiles too. One
// that really has them uses them: it would refuse some of their instructions alone, and an emulator
// that sees half of a program emulates nothing.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/amx/amx_emulator.h"
#include "base/cpu_detect.h"

namespace epilogue {

namespace {

bool has_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & (1U << 24)) == 0) return false;
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

CpuFeatures detect_features() {
  using enum CpuFeature;
  CpuFeatures all;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return all;
  all = all | CpuFeatures{avx2};
  const bool tiles = has_tiles();
  if (!tiles) testing::install_amx_emulator();
  if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    all = all | CpuFeatures{avx512, avx512_bf16, amx_bf16, amx_int8};
  if (__builtin_cpu_supports("avx512vnni")) all = all | CpuFeatures{avx512_vnni};
  return all;
}

}  // namespace epilogue
