// SPDX-License-Identifier: Apache-2.0
// Eager's product by the panel kernel of its plan.
#pragma once

#include "backend/cpu/simd/gemm/gemm.h"
#include "backend/cpu/simd/gemm/plan.h"

namespace epilogue::simd {

// For plans of GemmPath::panels.
void run_panel_gemm(const GemmCall& call, const GemmPlan& plan);

}  // namespace epilogue::simd
