// SPDX-License-Identifier: Apache-2.0
// The GEMM of bf16 matrices on dot-product or tile instructions, which sum pairs along k.
#pragma once

#include "backend/cpu/simd/gemm/gemm.h"
#include "backend/cpu/simd/gemm/plan.h"

namespace epilogue::simd {

// For calls whose strategy has GemmPath::pairs.
void run_gemm_pairs(const GemmCall& call, const GemmStrategy& strategy);

}  // namespace epilogue::simd
