// SPDX-License-Identifier: Apache-2.0
// Measures what this machine can do: the ceilings that kernels are held against, and the rates that
// cost models and predictions are made from (base/machine.h keeps them).
#pragma once

#include <functional>

#include "base/machine.h"
#include "epilogue/dtype.h"

namespace epilogue::measure {

// At the number of threads and the instruction set in use. Takes under a second; `progress` hears
// shares from 0 to 1. Not while other threads use the library.
MachineFigures measure_machine(const std::function<void(double)>& progress);

// The most that products of this dtype can reach, all threads, in GFLOP/s: multiply-adds from
// registers in f32 (what f16 is widened to), or bf16's dot products where they are faster. About a
// third of a second.
double measure_peak_gflops(DType dtype);

// Reading so many bytes over and over, all threads, in GB/s: from a cache where they fit into one.
double measure_read_gb_per_s(int64_t bytes);

}  // namespace epilogue::measure
