// SPDX-License-Identifier: Apache-2.0
// One element's step of Adam, AdamW and SGD; the host can do it too. The formulas are written above
// the references (ops/optimizer_steps.cpp).
#pragma once

#include "backend/cuda/kernels/lists.h"

namespace epilogue::cuda {

// 1 - beta^t, which must not lose what lies near 1.
__host__ __device__ inline float bias_correction(float log_beta, float steps) {
  return -expm1f(log_beta * steps);
}

// What all elements of a parameter share in a step.
struct AdamFactors {
  float grad;  // unscales, and negates to maximize
  float step_size;
  float inverse_root;
};
// `steps` counts the step that is taken.
__host__ __device__ inline AdamFactors adam_factors(const AdamStep& s, float inverse_scale,
                                                    float steps) {
  return {inverse_scale * s.sign, s.lr / bias_correction(s.log_beta1, steps),
          1.0f / sqrtf(bias_correction(s.log_beta2, steps))};
}

struct AdamElement {
  float param;
  float exp_avg;
  float exp_avg_sq;
  float largest;  // of amsgrad
};
__host__ __device__ inline void adam_element(const AdamStep& s, const AdamFactors& f, float grad,
                                             bool keeps_largest, AdamElement& e) {
  float g = grad * f.grad * s.clip;
  if (s.l2 != 0) g += s.l2 * e.param;
  e.exp_avg += s.beta1_weight * (g - e.exp_avg);
  e.exp_avg_sq = s.beta2 * e.exp_avg_sq + s.beta2_weight * g * g;
  if (keeps_largest) e.largest = fmaxf(e.largest, e.exp_avg_sq);
  const float second = keeps_largest ? e.largest : e.exp_avg_sq;
  e.param = e.param * s.decay - f.step_size * e.exp_avg / (sqrtf(second) * f.inverse_root + s.eps);
}

struct SgdElement {
  float param;
  float buffer;
};
__host__ __device__ inline void sgd_element(const SgdStep& s, float grad_factor, float grad,
                                            bool has_buffer, SgdElement& e) {
  float g = grad * grad_factor * s.clip;
  if (s.l2 != 0) g += s.l2 * e.param;
  if (has_buffer) {
    e.buffer = s.is_first ? g : s.momentum * e.buffer + s.dampened * g;
    g = s.nesterov ? g + s.momentum * e.buffer : e.buffer;
  }
  e.param -= s.lr * g;
}

}  // namespace epilogue::cuda
