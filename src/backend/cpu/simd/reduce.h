// SPDX-License-Identifier: Apache-2.0
// Row kernels on contiguous f32 rows: sums, softmax, normalisations and their gradients.
#pragma once

#include <cstddef>

namespace epilogue::simd {

struct RowMoments {
  float mean;
  float rstd;  // 1 / sqrt(variance + eps)
};

// Sums run in f32 with several lanes at once and pairwise above blocks of a few thousand elements:
// the error grows with log n, not n, and does not depend on the caller's split of other rows.
// Outputs may be the same array as an input of the same row (in place). gamma and beta may be null
// (1 and 0); so may outputs marked [or null]. One thread: the caller splits rows.
struct RowKernels {
  const char* target;  // Highway's name of the instruction set, e.g. "AVX3"

  float (*sum)(const float* x, size_t n);  // 0 for n = 0
  float (*max)(const float* x, size_t n);  // -inf for n = 0; NaN wins
  float (*min)(const float* x, size_t n);  // inf for n = 0; NaN wins
  // Index of the first element that equals `value`, or is NaN as it is; n where none is.
  size_t (*find)(const float* x, float value, size_t n);
  float (*squared_deviation)(const float* x, float centre, size_t n);  // sum of (x - centre)^2
  float (*dot)(const float* a, const float* b, size_t n);
  float (*squared_difference)(const float* a, const float* b, size_t n);  // sum of (a - b)^2
  void (*accumulate)(const float* x, float* acc, size_t n);               // acc += x: column sums

  void (*softmax)(const float* x, float* y, size_t n);
  void (*log_softmax)(const float* x, float* y, size_t n);
  // y is the forward's output. softmax: y * (dy - sum(dy * y)); log_softmax: dy - exp(y) * sum(dy).
  void (*softmax_backward)(const float* dy, const float* y, float* dx, size_t n);
  void (*log_softmax_backward)(const float* dy, const float* y, float* dx, size_t n);

  // y = (x - mean) * rstd * gamma + beta, biased variance, computed in two passes.
  RowMoments (*layer_norm)(const float* x, const float* gamma, const float* beta, float eps,
                           float* y, size_t n);
  // y = x * rstd * gamma with rstd = 1 / sqrt(mean(x^2) + eps); returns rstd.
  float (*rms_norm)(const float* x, const float* gamma, float eps, float* y, size_t n);
  // With g = dy * gamma and h = (x - mean) * rstd: dx = rstd * (g - mean(g) - h * mean(g * h))
  // [or null]. Adds dy * h to dgamma [or null] and dy to dbeta [or null]: the caller zeroes them
  // and sums those of its threads.
  void (*layer_norm_backward)(const float* dy, const float* x, const float* gamma,
                              RowMoments moments, float* dx, float* dgamma, float* dbeta, size_t n);
  // The same without mean: dx = rstd * (g - h * mean(g * h)), h = x * rstd.
  void (*rms_norm_backward)(const float* dy, const float* x, const float* gamma, float rstd,
                            float* dx, float* dgamma, size_t n);
};

// The kernels of active_isa(); valid for ever, but fetch them per call (targets.h).
const RowKernels& row_kernels();

}  // namespace epilogue::simd
