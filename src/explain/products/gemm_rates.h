// SPDX-License-Identifier: Apache-2.0
// What follows from a product's shape, types, kernel and time: rates, roofline, tiles.
#pragma once

#include "epilogue/trace/gemms.h"

namespace epilogue::trace {

// Fill in the second half of a Gemm from its first. `args` are those of one launch, or null.
void add_rates(Gemm& gemm, const Trace& trace);
void add_tensor_cores(Gemm& gemm, const DeviceProperties* device);
void add_tiling(Gemm& gemm, const KernelArgs* args, const DeviceProperties* device);

// Pairs of the same FLOPs on one device whose rates differ by a twentieth or more, and by more than
// chance: see GemmComparison. Times are known to `clock_step_ns`.
std::vector<GemmComparison> compare_gemms(const std::vector<Gemm>& gemms, int64_t clock_step_ns);

}  // namespace epilogue::trace
