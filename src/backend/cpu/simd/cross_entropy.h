// SPDX-License-Identifier: Apache-2.0
// Cross entropy on contiguous f32 rows: one pass over the logits forward, one backward.
#pragma once

#include <cstddef>

namespace epilogue::simd {

// log(softmax(x)) = x - max - log_sum. Two numbers, not their sum: x - max is exact for the large
// logits that matter.
struct SoftmaxStats {
  float max;
  float log_sum;  // log(sum of e^(x - max))
};

// Accuracy and overlap as in reduce.h. `weight` may be null: 1. One thread: the caller splits rows.
struct CrossEntropyKernels {
  const char* target;  // Highway's name of the instruction set, e.g. "AVX3"
  SoftmaxStats (*stats)(const float* x, size_t n);
  // sum of weight (x - max)
  float (*shifted_sum)(const float* x, const float* weight, float max, size_t n);
  // dx = scale e^(x - max - log_sum) - shift weight
  void (*gradient)(const float* x, const float* weight, SoftmaxStats stats, float scale,
                   float shift, float* dx, size_t n);
};

// The kernels of active_isa(); valid for ever, but fetch them per call (targets.h).
const CrossEntropyKernels& cross_entropy_kernels();

}  // namespace epilogue::simd
