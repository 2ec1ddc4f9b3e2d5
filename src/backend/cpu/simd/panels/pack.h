// SPDX-License-Identifier: Apache-2.0
// Copies of matrices in the layouts that kernels read: any strides and types into f32.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/convert.h"

namespace epilogue::simd {

// A matrix as packing sees it: `outer` is m for A and n for B.
struct PackSource {
  const void* data;
  FloatType type;
  int64_t outer_stride;
  int64_t k_stride;
};

struct PackKernels {
  const char* target;  // Highway's name of the instruction set, e.g. "AVX3"
  int64_t width;       // columns of a panel
  // m rows of A as f32 rows of contiguous k, out_row_stride apart.
  void (*rows)(const PackSource& source, int64_t m, int64_t k, float* out, int64_t out_row_stride);
  // n <= width columns of B as a panel [k][width], zeros beyond n.
  void (*panel)(const PackSource& source, int64_t n, int64_t k, float* out);
};
// The kernels of active_isa(); fetch them per call (targets.h).
const PackKernels& pack_kernels();

}  // namespace epilogue::simd
