// SPDX-License-Identifier: Apache-2.0
// The per-target parts of the GEMM, below the blocking and threading of gemm.cpp.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/convert.h"

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

struct GemmKernels {
  const char* target;  // Highway's name of the instruction set, e.g. "AVX3"
  int64_t mr;
  int64_t nr;
  void (*block)(const BlockArgs& args);
  void (*write_rows)(const float* sums, int64_t sums_stride, int64_t m, int64_t n,
                     const WriteBack& out);
};
const GemmKernels& gemm_kernels();

}  // namespace epilogue::simd
