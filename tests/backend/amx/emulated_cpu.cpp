// SPDX-License-Identifier: Apache-2.0
// In place of base/cpu_detect.cpp: a processor with the dot products of bf16 has tiles too.
#include "backend/amx/amx_emulator.h"
#include "base/cpu_detect.h"

namespace epilogue {

Isa detect_isa() {
  testing::install_amx_emulator();
  if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return Isa::amx;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? Isa::avx2
                                                                         : Isa::baseline;
}

}  // namespace epilogue
