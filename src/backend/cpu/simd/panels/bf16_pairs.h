// SPDX-License-Identifier: Apache-2.0
// The micro-kernels of AVX512-BF16's dot products. Raw intrinsics in a target region: Highway 1.0.3
// has no such target. To be called where cpu_has(CpuFeature::avx512_bf16) only.
#pragma once

#include "backend/cpu/simd/panels/kernel.h"

namespace epilogue::simd {

// Rows of n f32 as bf16, for products by these kernels: rounded to nearest even, but denormals
// become zero, which is what the products take them for. Strides in elements.
void round_to_bf16_rows(const float* in, int64_t in_stride, uint16_t* out, int64_t out_stride,
                        int64_t rows, int64_t n);

// Rows [row, row + rows) of what `to` stores, finished from sums [rows][width]; width is a multiple
// of 32.
void store_rows(const PanelStore& to, const float* sums, int64_t width, int64_t row, int64_t rows);

// Rows that they compute at once.
inline constexpr int64_t kBf16PairsRows = 6;

// [k / 2][width][2], k padded to a multiple of k_unit (even): what the tile instructions read too.
PanelLayout bf16_pairs_layout(int64_t k_unit);

void bf16_pairs_one(const PanelArgs& args);
void bf16_pairs_two(const PanelArgs& args);
// The same of panels in tiles.
void bf16_tile_pairs_one(const PanelArgs& args);
void bf16_tile_pairs_two(const PanelArgs& args);

}  // namespace epilogue::simd
