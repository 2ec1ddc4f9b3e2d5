// SPDX-License-Identifier: Apache-2.0
// The panel kernels of AVX-512's integer dot products (VNNI): 16-bit rows times 8-bit weights,
// twice the weights per instruction that widening to f32 gets through. To be called where
// active_isa() is avx512_bf16 or above only: every processor with that level has them.
#pragma once

#include "backend/cpu/simd/packed_gemm.h"

namespace epilogue::simd {

void i8_pairs_one(const PanelArgs& args);
void i8_pairs_two(const PanelArgs& args);

}  // namespace epilogue::simd
