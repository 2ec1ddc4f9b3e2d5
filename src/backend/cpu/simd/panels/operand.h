// SPDX-License-Identifier: Apache-2.0
// Where the elements of a matrix lie.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/convert.h"

namespace epilogue::simd {

// Element (i, j) lies at data + (i * row_stride + j * col_stride) elements. Strides may be 0
// (broadcast) or negative.
struct GemmOperand {
  const void* data = nullptr;
  FloatType type = FloatType::f32;
  int64_t row_stride = 0;
  int64_t col_stride = 0;
};

inline const void* advance(const void* p, FloatType type, int64_t elements) {
  return static_cast<const char*>(p) + elements * static_cast<int64_t>(size_of(type));
}
inline void* advance(void* p, FloatType type, int64_t elements) {
  return static_cast<char*>(p) + elements * static_cast<int64_t>(size_of(type));
}
inline const void* at(const GemmOperand& x, int64_t row, int64_t column) {
  return advance(x.data, x.type, row * x.row_stride + column * x.col_stride);
}

}  // namespace epilogue::simd
