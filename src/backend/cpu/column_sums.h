// SPDX-License-Identifier: Apache-2.0
// Sums over all rows of what is made block by block, by any number of threads. Groups of rows are
// summed apart, their sums in pairs: the result depends on the matrix alone, and rounding errors
// grow with the logarithm of the number of rows.
#pragma once

#include <cstdint>

#include "backend/cpu/tile_io.h"

namespace epilogue::cpu {

// Rows of a group. Their sums are 1/32 of what was summed, and half of the smallest block of rows
// that a row chain is cut into is lost at most.
inline constexpr int64_t kColumnSumRows = 32;

class ColumnSums {
 public:
  ColumnSums() = default;
  // `memory`: floats(rows, columns), anything in it.
  ColumnSums(float* memory, int64_t rows, int64_t columns)
      : memory_(memory), groups_(groups(rows)), columns_(columns) {}
  static int64_t floats(int64_t rows, int64_t columns) { return groups(rows) * columns; }

  // Adds a tile, `stride` floats between its rows. Each row and column once; the rows of a group in
  // their order and, of one column, by one thread.
  void add(const TileBounds& block, const float* tile, int64_t stride) const;
  // When all was added: the sums into a row of `out`; zeros where there was nothing. The memory is
  // used up.
  void finish(const MatrixView& out) const;

 private:
  static int64_t groups(int64_t rows) { return (rows + kColumnSumRows - 1) / kColumnSumRows; }
  void finish_columns(const MatrixView& out, int64_t begin, int64_t end) const;

  float* memory_ = nullptr;  // [groups][columns]
  int64_t groups_ = 0;
  int64_t columns_ = 0;
};

}  // namespace epilogue::cpu
