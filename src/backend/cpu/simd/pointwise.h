// SPDX-License-Identifier: Apache-2.0
// Pointwise kernels on contiguous f32 tiles: one for each elementwise row of the table of
// functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "pointwise/pointwise_fn.h"

namespace epilogue::simd {

// An operand: n elements, or one value for all of them.
struct TileOperand {
  const float* data = nullptr;  // null: `value`
  float value = 0;

  TileOperand() = default;
  TileOperand(const float* elements) : data(elements) {}  // NOLINT: implicit on purpose
  TileOperand(float number) : value(number) {}            // NOLINT
};

// out[i] = f(operands[0][i], ...), with the operands and parameters that the function's row names.
// NaN gives NaN, but where the function selects. At the ends the formulas' values, as PyTorch's:
// x times a gate gives +inf for +inf and NaN for -inf (-inf * 0). relu_backward takes the forward's
// input as well as its output: y > 0 exactly where x > 0.
using FunctionTile = void (*)(const TileOperand* operands, float* out, size_t n,
                              const float* parameters);

// `out` may be one of the inputs; partial overlap is not allowed. Nothing is read or written beyond
// n elements and nothing needs alignment. One thread: the caller splits.
struct PointwiseKernels {
  const char* target;  // Highway's name of the instruction set, e.g. "AVX3"
  // By PointwiseFn; null for reductions.
  std::array<FunctionTile, kPointwiseFns> functions;
  // out = scale where keep[i] != 0, times x; 0 elsewhere (also where x is NaN): dropout and its
  // backward.
  void (*mask_scale)(const float* x, const uint8_t* keep, float scale, float* out, size_t n);
  void (*scale)(const float* x, float s, float* out, size_t n);
  void (*axpy)(float s, const float* x, float* out, size_t n);  // out += s * x
  void (*fill)(float value, float* out, size_t n);

  FunctionTile operator[](PointwiseFn fn) const { return functions[static_cast<size_t>(fn)]; }
  // With the table's parameters.
  void run(PointwiseFn fn, std::initializer_list<TileOperand> operands, float* out,
           size_t n) const {
    (*this)[fn](operands.begin(), out, n, default_parameters(fn).data());
  }
};

// The kernels of active_isa(); valid for ever, but fetch them per call (targets.h).
const PointwiseKernels& pointwise_kernels();

}  // namespace epilogue::simd
