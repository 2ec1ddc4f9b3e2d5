// SPDX-License-Identifier: Apache-2.0
// Measures what this machine can do: the ceilings that kernels are held against.
#pragma once

#include <functional>

namespace epilogue::tool {

struct Ceilings {
  double f32_gflops = 0;  // multiply-adds from registers, all threads
  double f32_gflops_one_thread = 0;
  double memory_gb_per_s = 0;  // reading 256 MiB, all threads
  double memory_gb_per_s_one_thread = 0;
};

// Takes about two seconds; `progress` hears shares from 0 to 1.
Ceilings measure_ceilings(const std::function<void(double)>& progress);

}  // namespace epilogue::tool
