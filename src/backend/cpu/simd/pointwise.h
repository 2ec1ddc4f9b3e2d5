// SPDX-License-Identifier: Apache-2.0
// Pointwise kernels on contiguous f32 tiles: activations, their derivatives, arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>

namespace epilogue::simd {

// out[i] = f(x[i]). NaN gives NaN. At the ends the formulas' values: gelu_tanh, gelu_erf and silu
// give +inf for +inf and NaN for -inf (-inf * 0), as PyTorch's do.
enum class UnaryOp : uint8_t {
  neg,
  relu,
  sigmoid,
  tanh,
  exp,
  gelu_tanh,
  gelu_erf,
  silu,
  log,    // one at a time: for the few numbers that rows reduce to
  rsqrt,  // 1 / sqrt(x), two roundings
};
inline constexpr size_t kUnaryOps = 10;

// out[i] = f(a[i], b[i]). `alpha` scales b in add and sub (a + alpha * b) and is ignored elsewhere.
enum class ArithmeticOp : uint8_t { add, sub, mul, div };
inline constexpr size_t kArithmeticOps = 4;

// out[i] = dy[i] * f'(saved[i]). `saved` is the forward's input x, except for relu, sigmoid and
// tanh: their output y. (relu takes x as well: y > 0 exactly where x > 0.)
enum class BackwardOp : uint8_t { relu, sigmoid, tanh, gelu_tanh, gelu_erf, silu };
inline constexpr size_t kBackwardOps = 6;

using UnaryTile = void (*)(const float* x, float* out, size_t n);
using BinaryTile = void (*)(const float* a, const float* b, float* out, size_t n, float alpha);
using ScalarRightTile = void (*)(const float* a, float b, float* out, size_t n, float alpha);
using ScalarLeftTile = void (*)(float a, const float* b, float* out, size_t n, float alpha);
using BackwardTile = void (*)(const float* dy, const float* saved, float* out, size_t n);

// `out` may be one of the inputs; partial overlap is not allowed. Nothing is read or written beyond
// n elements and nothing needs alignment. One thread: the caller splits.
struct PointwiseKernels {
  const char* target;  // Highway's name of the instruction set, e.g. "AVX3"
  UnaryTile unary[kUnaryOps];
  BinaryTile arithmetic[kArithmeticOps];
  ScalarRightTile arithmetic_scalar_right[kArithmeticOps];  // a[i] op scalar
  ScalarLeftTile arithmetic_scalar_left[kArithmeticOps];    // scalar op b[i]
  BackwardTile backward[kBackwardOps];
  // out = scale where keep[i] != 0, times x; 0 elsewhere (also where x is NaN): dropout and its
  // backward.
  void (*mask_scale)(const float* x, const uint8_t* keep, float scale, float* out, size_t n);
  void (*scale)(const float* x, float s, float* out, size_t n);
  void (*axpy)(float s, const float* x, float* out, size_t n);  // out += s * x
  void (*fill)(float value, float* out, size_t n);

  UnaryTile operator[](UnaryOp op) const { return unary[static_cast<size_t>(op)]; }
  BinaryTile operator[](ArithmeticOp op) const { return arithmetic[static_cast<size_t>(op)]; }
  BackwardTile operator[](BackwardOp op) const { return backward[static_cast<size_t>(op)]; }
};

// The kernels of active_isa(); valid for ever, but fetch them per call (targets.h).
const PointwiseKernels& pointwise_kernels();

}  // namespace epilogue::simd
