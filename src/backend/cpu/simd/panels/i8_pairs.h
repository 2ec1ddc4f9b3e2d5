// SPDX-License-Identifier: Apache-2.0
// The panel kernels of AVX-512's integer dot products (VNNI): 16-bit rows times 8-bit weights,
// twice the weights per instruction that widening to f32 gets through. To be called
// where cpu_has(CpuFeature::avx512_vnni) only.
#pragma once

#include "backend/cpu/simd/panels/packed_weights.h"

namespace epilogue::simd {

void i8_pairs_one(const PanelArgs& args);
void i8_pairs_two(const PanelArgs& args);

}  // namespace epilogue::simd
