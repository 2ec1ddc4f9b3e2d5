// SPDX-License-Identifier: Apache-2.0
// Eager's product in tiles, both operands packed on the way.
#pragma once

#include "backend/cpu/simd/gemm/gemm.h"
#include "backend/cpu/simd/gemm/plan.h"

namespace epilogue::simd {

// For plans of GemmPath::tiles.
void run_tile_gemm(const GemmCall& call, const GemmPlan& plan);

}  // namespace epilogue::simd
