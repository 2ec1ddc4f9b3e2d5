// SPDX-License-Identifier: Apache-2.0
// Kernels on contiguous f32 tiles of gradients: sums for norms, unscaling with a check, clamping.
#pragma once

#include <cstddef>

namespace epilogue::simd {

// Sums run in f64: the squares of f32 neither overflow nor vanish. Nothing is touched beyond n
// elements and nothing needs alignment. `out` may be `x`. One thread: the caller splits.
struct GradientKernels {
  const char* target;  // Highway's name of the instruction set, e.g. "AVX3"
  double (*sum_squares)(const float* x, size_t n);
  double (*sum_magnitudes)(const float* x, size_t n);
  float (*max_magnitude)(const float* x, size_t n);  // 0 for n = 0; NaN wins
  bool (*all_finite)(const float* x, size_t n);
  // out = x factor; whether all x are finite.
  bool (*scale_and_check)(const float* x, float factor, float* out, size_t n);
  // NaN stays.
  void (*clamp)(const float* x, float low, float high, float* out, size_t n);
};

// The kernels of active_isa(); valid for ever, but fetch them per call (targets.h).
const GradientKernels& gradient_kernels();

}  // namespace epilogue::simd
