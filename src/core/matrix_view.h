// SPDX-License-Identifier: Apache-2.0
// How fused kernels see what they read and write: rows of a matrix, wherever they lie.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "epilogue/dtype.h"

namespace epilogue {

// How rows lie where one stride does not say it: every `rows` rows, `stride` elements further on.
struct RowLevel {
  int64_t rows = 0;  // 0: there is no such level
  int64_t stride = 0;
  bool operator==(const RowLevel&) const = default;
};
inline constexpr size_t kRowLevels = 2;

// Element (i, j) lies at data + i * row_stride + j * col_stride; a stride of 0 broadcasts. Operands
// of programs may have levels, the inner one first: with rows r = i % levels[0].rows etc.,
//   i / levels[1].rows * levels[1].stride + (i % levels[1].rows) / levels[0].rows * ... + r *
//   row_stride
struct MatrixView {
  void* data = nullptr;
  DType dtype = DType::f32;
  int64_t row_stride = 0;
  int64_t col_stride = 0;
  std::array<RowLevel, kRowLevels> levels = {};
};

inline bool has_levels(const MatrixView& view) { return view.levels[0].rows > 0; }

}  // namespace epilogue
