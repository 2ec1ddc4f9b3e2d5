// SPDX-License-Identifier: Apache-2.0
// Where the result of a GEMM goes.
#pragma once

#include "backend/cpu/simd/gemm/gemm.h"
#include "backend/cpu/simd/panels/write_back.h"

namespace epilogue::simd {

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
