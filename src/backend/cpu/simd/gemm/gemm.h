// SPDX-License-Identifier: Apache-2.0
// C = alpha * A * B + beta * bias for any strides and f32, bf16 or f16, threaded and blocked.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/panels/operand.h"

namespace epilogue::simd {

// Everything of one GEMM. C is [m, n] with unit column stride and c_row_stride >= n; it overlaps
// neither A nor B. bias is [m, n] by its strides: {0, 1} is a row vector (nn.Linear's), no data is
// no bias, beta = 0 leaves it unread. C may be the bias itself (same data and strides):
// accumulation.
struct GemmCall {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  GemmOperand a;  // [m, k]
  GemmOperand b;  // [k, n]
  GemmOperand bias;
  float alpha = 1.0F;
  float beta = 1.0F;
  void* c = nullptr;
  FloatType c_type = FloatType::f32;
  int64_t c_row_stride = 0;
};

// Runs it on parallel_for's threads. Sums are f32 over all of K whatever the types; each element is
// rounded once, when it is written. k = 0 gives beta * bias, or zeros. The result is the same bit
// for bit from run to run for a given ISA level and thread count. Scratch memory belongs to the
// threads and is reused by later calls. Never throws (out of memory apart).
void gemm(const GemmCall& call);

// What gemm(call) would run now, for traces.
struct GemmPlan {
  // e.g. "epi_avx512_gemm_f32_6x64_tn_bias"; lives for ever. Types: one if A, B and C agree, else
  // those of A, B, C ("bf16bf16f32"). Letters: as cuBLAS, column-major, would be told: first B (t:
  // k is contiguous, nn.Linear's weight; n: n is), then A (n: k is contiguous). "_bias": a row
  // vector is added; "_add": a matrix. "gemv" for at most 8 rows: B is read where it lies.
  const char* name;
  int64_t grid[3];   // blocks over n, over m, and chunks of k
  int64_t block[3];  // columns, rows and depth of one block
  int threads;
};
GemmPlan describe_gemm(const GemmCall& call);

}  // namespace epilogue::simd
