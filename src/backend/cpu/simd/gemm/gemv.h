// SPDX-License-Identifier: Apache-2.0
// A few rows times B, which is read once and where it lies: to pack it would cost more than the
// product.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/convert.h"

namespace epilogue::simd {

// Sums of at most kGemvRows rows of x times B, read where it lies: sums[m][n].
struct GemvArgs {
  int64_t m;
  int64_t n;
  int64_t k;
  const float* x;  // [m][k], rows k apart
  const void* b;
  FloatType b_type;
  int64_t b_stride;  // between rows of B (n contiguous), or between columns (k contiguous)
  float* sums;
  float* piece;  // scratch, as large as `sums`
  int64_t sums_stride;
};
inline constexpr int64_t kGemvRows = 8;

struct GemvKernels {
  const char* target;
  void (*n_contiguous)(const GemvArgs& args);
  void (*k_contiguous)(const GemvArgs& args);
};
const GemvKernels& gemv_kernels();

}  // namespace epilogue::simd
