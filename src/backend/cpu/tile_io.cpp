// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/tile_io.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/float_type.h"
#include "backend/cpu/simd/convert.h"

namespace epilogue::cpu {
namespace {

using simd::FloatType;

char* element(const MatrixView& view, FloatType type, int64_t row, int64_t column) {
  return static_cast<char*>(view.data) +
         (row * view.row_stride + column * view.col_stride) * static_cast<int64_t>(size_of(type));
}

void load_row(const MatrixView& view, FloatType type, int64_t row, const TileBounds& block,
              float* out) {
  if (view.col_stride == 1)
    return simd::to_f32(type, element(view, type, row, block.column), out,
                        static_cast<size_t>(block.columns));
  if (view.col_stride == 0) {
    simd::to_f32(type, element(view, type, row, 0), out, 1);
    std::fill(out + 1, out + block.columns, out[0]);
    return;
  }
  for (int64_t j = 0; j < block.columns; ++j)
    simd::to_f32(type, element(view, type, row, block.column + j), out + j, 1);
}

}  // namespace

void load_tile(const MatrixView& view, const TileBounds& block, float* tile) {
  const FloatType type = float_type(view.dtype);
  const bool dense = view.col_stride == 1 && view.row_stride == block.columns;
  if (dense)
    return simd::to_f32(type, element(view, type, block.row, block.column), tile,
                        static_cast<size_t>(block.rows * block.columns));
  for (int64_t i = 0; i < block.rows; ++i) {
    float* const to = tile + i * block.columns;
    if (view.row_stride == 0 && i > 0) {
      std::memcpy(to, tile, static_cast<size_t>(block.columns) * sizeof(float));
    } else {
      load_row(view, type, block.row + i, block, to);
    }
  }
}

void store_tile(const MatrixView& view, const TileBounds& block, const float* tile) {
  const FloatType type = float_type(view.dtype);
  if (view.row_stride == block.columns)
    return simd::from_f32(type, tile, element(view, type, block.row, block.column),
                          static_cast<size_t>(block.rows * block.columns));
  for (int64_t i = 0; i < block.rows; ++i)
    simd::from_f32(type, tile + i * block.columns, element(view, type, block.row + i, block.column),
                   static_cast<size_t>(block.columns));
}

}  // namespace epilogue::cpu
