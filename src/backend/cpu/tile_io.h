// SPDX-License-Identifier: Apache-2.0
// Parts of matrices to and from the dense f32 tiles that programs run on.
#pragma once

#include <cstdint>

#include "core/row_chain.h"

namespace epilogue::cpu {

// A block of a matrix.
struct TileBounds {
  int64_t row;
  int64_t rows;
  int64_t column;
  int64_t columns;
};

// What load_tile() reads: f32, bf16, f16, and masks of bytes.
bool is_tile_source(DType dtype);
// tile [rows][columns] = the block, widened; `stride` floats lie between the tile's rows. What lies
// between them stays as it is.
void load_tile(const MatrixView& view, const TileBounds& block, float* tile, int64_t stride);
// What store_tile() writes: f32, bf16, f16 and booleans.
bool is_tile_target(DType dtype);
// The block = tile, rounded once; booleans: where it is not 0. The view's columns are contiguous.
void store_tile(const MatrixView& view, const TileBounds& block, const float* tile, int64_t stride);

}  // namespace epilogue::cpu
