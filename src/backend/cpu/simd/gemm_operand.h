// SPDX-License-Identifier: Apache-2.0
// Where the elements of a GEMM's matrices lie.
#pragma once

#include "backend/cpu/simd/gemm.h"
#include "backend/cpu/simd/gemm_kernels.h"

namespace epilogue::simd {

inline const void* advance(const void* p, FloatType type, int64_t elements) {
  return static_cast<const char*>(p) + elements * static_cast<int64_t>(size_of(type));
}
inline void* advance(void* p, FloatType type, int64_t elements) {
  return static_cast<char*>(p) + elements * static_cast<int64_t>(size_of(type));
}
inline const void* at(const GemmOperand& x, int64_t row, int64_t column) {
  return advance(x.data, x.type, row * x.row_stride + column * x.col_stride);
}

// How sums become C from element (row, column) on.
inline WriteBack bias_write_back(const GemmCall& c, int64_t row, int64_t column) {
  WriteBack to;
  to.alpha = c.alpha;
  to.out = advance(c.c, c.c_type, row * c.c_row_stride + column);
  to.out_type = c.c_type;
  to.out_row_stride = c.c_row_stride;
  if (c.bias.data != nullptr && c.beta != 0.0F) {
    to.scale = c.beta;
    to.addend = at(c.bias, row, column);
    to.addend_type = c.bias.type;
    to.addend_row_stride = c.bias.row_stride;
    to.addend_col_stride = c.bias.col_stride;
  }
  return to;
}

}  // namespace epilogue::simd
