// SPDX-License-Identifier: Apache-2.0
// How f32 sums become a result of any type.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/panels/operand.h"

namespace epilogue::simd {

// out = alpha * sums + scale * addend, for one block: both pointers are its upper left element.
struct WriteBack {
  float alpha = 1.0F;
  float scale = 0.0F;
  const void* addend = nullptr;  // null: none
  FloatType addend_type = FloatType::f32;
  int64_t addend_row_stride = 0;
  int64_t addend_col_stride = 0;
  void* out = nullptr;
  FloatType out_type = FloatType::f32;
  int64_t out_row_stride = 0;
};

// From element (row, column) on.
inline WriteBack moved(WriteBack to, int64_t row, int64_t column) {
  to.out = advance(to.out, to.out_type, row * to.out_row_stride + column);
  if (to.addend != nullptr)
    to.addend = advance(to.addend, to.addend_type,
                        row * to.addend_row_stride + column * to.addend_col_stride);
  return to;
}

struct WriteBackKernels {
  const char* target;  // Highway's name of the instruction set, e.g. "AVX3"
  void (*rows)(const float* sums, int64_t sums_stride, int64_t m, int64_t n, const WriteBack& out);
};
// The kernels of active_isa(); fetch them per call (targets.h).
const WriteBackKernels& write_back_kernels();

}  // namespace epilogue::simd
