// SPDX-License-Identifier: Apache-2.0
// One step of a pointwise program on a tile: contiguous f32 arrays that lie in L1.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/simd/pointwise.h"

namespace epilogue::simd {

struct TileStep {
  enum class Form : uint8_t { unary, binary, scalar_right, scalar_left, backward };
  Form form = Form::unary;
  uint8_t op = 0;  // UnaryOp, ArithmeticOp or BackwardOp
  int a = 0;       // the caller's numbers of the operands
  int b = 0;
  float scalar = 0;
  float alpha = 1;
};

// out = step(a, b), n elements; out may be a or b.
void run_step(const TileStep& step, const float* a, const float* b, float* out, size_t n,
              const PointwiseKernels& kernels);

}  // namespace epilogue::simd
