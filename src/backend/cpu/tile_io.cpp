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

// Masks: one byte each, 0 and 1 or any small numbers.
bool is_bytes(const MatrixView& view) {
  return view.dtype == DType::u8 || view.dtype == DType::boolean;
}

void load_bytes(const MatrixView& view, const TileBounds& block, float* tile, int64_t stride) {
  for (int64_t i = 0; i < block.rows; ++i) {
    const auto* const from = static_cast<const uint8_t*>(view.data) +
                             (block.row + i) * view.row_stride + block.column * view.col_stride;
    for (int64_t j = 0; j < block.columns; ++j)
      tile[i * stride + j] = static_cast<float>(from[j * view.col_stride]);
  }
}

void store_truths(const MatrixView& view, const TileBounds& block, const float* tile,
                  int64_t stride) {
  for (int64_t i = 0; i < block.rows; ++i) {
    auto* const to = static_cast<uint8_t*>(view.data) + (block.row + i) * view.row_stride +
                     block.column * view.col_stride;
    for (int64_t j = 0; j < block.columns; ++j) to[j] = tile[i * stride + j] != 0 ? 1 : 0;
  }
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

// Whether a block's rows follow each other without a gap in the matrix and in the tile.
bool is_dense(const MatrixView& view, const TileBounds& block, int64_t stride) {
  return view.col_stride == 1 && view.row_stride == block.columns && stride == block.columns;
}

}  // namespace

bool is_tile_source(DType dtype) {
  return has_float_type(dtype) || dtype == DType::u8 || dtype == DType::boolean;
}

namespace {

// Runs of rows of the innermost level, each of which has one stride.
void load_levels(const MatrixView& view, const TileBounds& block, float* tile, int64_t stride) {
  const auto bytes = static_cast<int64_t>(dtype_bytes(view.dtype));
  for (int64_t done = 0; done < block.rows;) {
    int64_t row = block.row + done;
    int64_t offset = 0;
    for (size_t level = kRowLevels; level-- > 0;) {
      const RowLevel& at = view.levels[level];
      if (at.rows == 0) continue;
      offset += row / at.rows * at.stride;
      row %= at.rows;
    }
    const int64_t count = std::min(block.rows - done, view.levels[0].rows - row);
    const MatrixView run = {static_cast<char*>(view.data) + offset * bytes, view.dtype,
                            view.row_stride, view.col_stride};
    load_tile(run, {row, count, block.column, block.columns}, tile + done * stride, stride);
    done += count;
  }
}

}  // namespace

void load_tile(const MatrixView& view, const TileBounds& block, float* tile, int64_t stride) {
  if (has_levels(view)) return load_levels(view, block, tile, stride);
  if (is_bytes(view)) return load_bytes(view, block, tile, stride);
  const FloatType type = float_type(view.dtype);
  if (is_dense(view, block, stride))
    return simd::to_f32(type, element(view, type, block.row, block.column), tile,
                        static_cast<size_t>(block.rows * block.columns));
  if (view.col_stride == 1 && view.row_stride != 0)
    return simd::to_f32_rows(type, element(view, type, block.row, block.column), view.row_stride,
                             tile, stride, static_cast<size_t>(block.rows),
                             static_cast<size_t>(block.columns));
  for (int64_t i = 0; i < block.rows; ++i) {
    float* const to = tile + i * stride;
    if (view.row_stride == 0 && i > 0) {
      std::memcpy(to, tile, static_cast<size_t>(block.columns) * sizeof(float));
    } else {
      load_row(view, type, block.row + i, block, to);
    }
  }
}

bool is_tile_target(DType dtype) { return has_float_type(dtype) || dtype == DType::boolean; }

void store_tile(const MatrixView& view, const TileBounds& block, const float* tile,
                int64_t stride) {
  if (is_bytes(view)) return store_truths(view, block, tile, stride);
  const FloatType type = float_type(view.dtype);
  char* const to = element(view, type, block.row, block.column);
  if (is_dense(view, block, stride))
    return simd::from_f32(type, tile, to, static_cast<size_t>(block.rows * block.columns));
  simd::from_f32_rows(type, tile, stride, to, view.row_stride, static_cast<size_t>(block.rows),
                      static_cast<size_t>(block.columns));
}

}  // namespace epilogue::cpu
