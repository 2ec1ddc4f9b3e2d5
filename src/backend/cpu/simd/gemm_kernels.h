// SPDX-License-Identifier: Apache-2.0
// The per-target parts of the GEMM, below the blocking and threading of gemm.cpp.
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

// One block of C: [m, k] times [k, n], f32.
struct BlockArgs {
  int64_t m;
  int64_t n;  // at most nr where b is a packed panel
  int64_t k;
  const float* a;  // rows, k contiguous
  int64_t a_row_stride;
  const float* b;  // rows, n contiguous; whole vectors are read, so n is a multiple of the lanes or
  int64_t b_row_stride;  // b a packed panel
  WriteBack out;
};

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
  int64_t sums_stride;
};
inline constexpr int64_t kGemvRows = 8;

struct GemmKernels {
  const char* target;  // Highway's name of the instruction set, e.g. "AVX3"
  int64_t mr;
  int64_t nr;
  // m rows of A as f32 rows of contiguous k, out_row_stride apart.
  void (*pack_a)(const PackSource& source, int64_t m, int64_t k, float* out,
                 int64_t out_row_stride);
  // n <= nr columns of B as a panel [k][nr], zeros beyond n.
  void (*pack_b)(const PackSource& source, int64_t n, int64_t k, float* out);
  void (*block)(const BlockArgs& args);
  void (*write_rows)(const float* sums, int64_t sums_stride, int64_t m, int64_t n,
                     const WriteBack& out);
};
const GemmKernels& gemm_kernels();

struct GemvKernels {
  const char* target;
  void (*n_contiguous)(const GemvArgs& args);
  void (*k_contiguous)(const GemvArgs& args);
};
const GemvKernels& gemv_kernels();

}  // namespace epilogue::simd
