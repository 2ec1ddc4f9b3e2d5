// SPDX-License-Identifier: Apache-2.0
// Matrices of bf16, any strides, as tiles: of rows, or of columns.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/panels/pack.h"
#include "backend/cpu/simd/panels/tiled_rows.h"

namespace epilogue::simd {

// m rows of A from row `first` of `to` on, a multiple of 16; zeros beyond k.
void pack_tile_rows(const PackSource& source, int64_t m, int64_t k, const TiledRows& to,
                    int64_t first);

// n <= 16 columns of B as one tile for each step of k, kTilePairBytes apart; zeros beyond n and k.
void pack_tile_columns(const PackSource& source, int64_t n, int64_t k, int64_t steps, void* out);

// n <= 32 columns of B as a block: two such tiles for each step.
void pack_tile_block(const PackSource& source, int64_t n, int64_t k, int64_t steps, void* out);

// Parts of these, where the processor has AVX-512 for words of 16 bits. Rows of 32 elements side by
// side, `pairs` times two: the first 16 columns' pairs, a line each, and the others'.
void interleave_pairs(const uint16_t* from, int64_t k_stride, int64_t pairs, void* low, void* high);
// A tile of 16 words of 32 bits, transposed; whole lines are read.
void transpose_square(const void* from, int64_t stride_bytes, void* out);

// Two blocks of two tiles each, of one product's 64 columns or two products' 32 each: where tile t
// of a panel lies behind its first byte.
constexpr int64_t tile_place(int64_t t, int products, int64_t block_bytes) {
  // Those of two products take turns.
  const int64_t place = products == 1 ? t : t % 2 * 2 + t / 2;
  return place / 2 * block_bytes + place % 2 * (kTilePairBytes / 2);
}

}  // namespace epilogue::simd
