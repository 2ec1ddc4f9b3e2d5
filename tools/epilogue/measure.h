// SPDX-License-Identifier: Apache-2.0
// Measures what this machine can do: the ceilings that kernels are held against, and the rates that
// predictions are made from.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "epilogue/dtype.h"

#include "epilogue/dtype.h"

namespace epilogue::tool {

// Row chains of one product, with weights that stay in the caches:
//   time = FLOPs / rate(rows) + elements of the result x ns_per_element
struct ChainRates {
  DType dtype;
  std::vector<std::pair<int64_t, double>> gflops;  // by the number of rows
  double ns_per_element = 0;
};

struct Ceilings {
  double f32_gflops = 0;  // multiply-adds from registers, all threads
  double f32_gflops_one_thread = 0;
  double bf16_gflops = 0;      // bf16 products by instructions of their own; 0: none, or not known
  double memory_gb_per_s = 0;  // reading 256 MiB, all threads
  double memory_gb_per_s_one_thread = 0;
  std::vector<std::pair<int64_t, double>> read_gb_per_s;  // by bytes: caches, then memory
  std::vector<ChainRates> chains;
  double chain_overhead_us = 0;  // of a row chain that computes next to nothing
};

// At the number of threads and the instruction set in use. Takes about three seconds; `progress`
// hears shares from 0 to 1.
Ceilings measure_ceilings(const std::function<void(double)>& progress);

// The most that products of this dtype can reach, all threads, in GFLOP/s: multiply-adds from
// registers in f32 (what f16 is widened to), or bf16's dot products where they are faster. About
// half a second.
double measure_peak_gflops(DType dtype);

}  // namespace epilogue::tool
