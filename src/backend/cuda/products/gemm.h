// SPDX-License-Identifier: Apache-2.0
// Matrix products on cuBLASLt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/op.h"

namespace epilogue::cuda {

// Element (i, j) of batch element l at data + i * row_stride + j * col_stride + l * batch_stride.
struct GemmMatrix {
  const void* data = nullptr;
  int64_t row_stride = 0;
  int64_t col_stride = 0;
  int64_t batch_stride = 0;
};

// c [m, n] = f(alpha a [m, k] b [k, n] + beta addend + bias [n]); all of one dtype, sums in f32.
struct GemmCall {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t batch = 1;
  DType dtype = DType::f32;
  GemmMatrix a;
  GemmMatrix b;
  void* c = nullptr;
  int64_t c_row_stride = 0;
  int64_t c_batch_stride = 0;
  float alpha = 1;
  // c's old value, or another matrix [m, n] with unit column stride that is added to c.
  float beta = 0;
  const void* addend = nullptr;  // null: c itself
  int64_t addend_row_stride = 0;
  const void* bias = nullptr;  // contiguous, or null
  bool gelu_tanh = false;
};

// The same product as cuBLASLt has it: column-major, c^T [n, m] = b^T a^T. first is b, second a.
struct GemmLayout {
  bool first_transposed = false;
  bool second_transposed = false;
  int64_t first_ld = 0;
  int64_t second_ld = 0;
};
// nullopt where a or b has no unit stride: then it must be copied.
std::optional<GemmLayout> gemm_layout(const GemmCall& call);

// Launches the product; m, n, k > 0. `tune`: at the first call of a shape, time the candidates and
// keep the fastest (call.c is written several times, so that it must not be what is added); else
// the library's first choice. Throws Error where cuBLASLt is missing or has no kernel. Thread-safe.
void gemm(const GemmCall& call, bool tune = false);

}  // namespace epilogue::cuda
