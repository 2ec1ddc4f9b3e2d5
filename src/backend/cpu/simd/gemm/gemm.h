// SPDX-License-Identifier: Apache-2.0
// C = alpha * A * B + beta * bias for any strides and f32, bf16 or f16, threaded and blocked.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/cpu/simd/panels/block_lines.h"
#include "backend/cpu/simd/panels/operand.h"

namespace epilogue::simd {

// What follows from a product of bf16 within an MLP, made of its f32 sums.
struct GemmHidden {
  PointwiseFn f;
  HiddenSums sums;
  HiddenElements elements;  // [m, n] as C, of its row stride; what the sums are is C, or nowhere
};

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
  const GemmHidden* hidden = nullptr;  // where makes_hidden() says so
};

// Whether this call may have `hidden`, with this function: C (of d_hidden it is not written) is
// bf16, and the product runs on tiles.
bool makes_hidden(const GemmCall& call, PointwiseFn f);

// Runs it as plan_gemm() says, on parallel_for's threads. Sums are f32 over all of K whatever the
// types; each element is rounded once, when it is written. k = 0 gives beta * bias, or zeros. The
// result is the same bit for bit from run to run for a given ISA level and thread count. Scratch
// memory belongs to the threads and is reused by later calls. Never throws (out of memory apart).
void gemm(const GemmCall& call);

}  // namespace epilogue::simd
