// SPDX-License-Identifier: Apache-2.0
#include "base/cpu_detect.h"

#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace epilogue {

#if defined(__x86_64__)
namespace {

// AMX state is saved by the kernel only if XCR0 says so (bits 17 and 18), and Linux makes a process
// ask for the tiles' memory once.
bool os_grants_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & (1U << 27)) == 0) return false;
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & (3U << 17)) != (3U << 17)) return false;
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return true;
#endif
}

}  // namespace

CpuFeatures detect_features() {
  using enum CpuFeature;
  CpuFeatures all;
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & (1U << 29)) != 0;
  if (!f16c || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return all;
  all = all | CpuFeatures{avx2};
  unsigned more = 0;
  if (__get_cpuid_count(7, 1, &more, &b, &c, &d) != 0 && (more & (1U << 4)) != 0)
    all = all | CpuFeatures{avx_vnni};
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
  if (!has_avx512) return all;
  all = all | CpuFeatures{avx512};
  if (__builtin_cpu_supports("avx512vnni")) all = all | CpuFeatures{avx512_vnni};
  unsigned amx = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) amx = d;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1U << 5)) != 0)
    all = all | CpuFeatures{avx512_bf16};
  if ((amx & (1U << 22)) != 0 && (amx & (1U << 24)) != 0 && os_grants_amx()) {
    all = all | CpuFeatures{amx_bf16};
    if ((amx & (1U << 25)) != 0) all = all | CpuFeatures{amx_int8};
  }
  return all;
}
#else
CpuFeatures detect_features() { return {}; }
#endif

}  // namespace epilogue
