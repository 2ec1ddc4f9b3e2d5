// SPDX-License-Identifier: Apache-2.0
// The micro-kernels of AVX512-BF16's dot products. Raw intrinsics in a target region: Highway 1.0.3
// has no such target. To be called where active_isa() has the level only.
#pragma once

#include "backend/cpu/simd/packed_gemm.h"

namespace epilogue::simd {

void bf16_pairs_one(const PanelArgs& args);
void bf16_pairs_two(const PanelArgs& args);

}  // namespace epilogue::simd
