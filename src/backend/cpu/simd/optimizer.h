// SPDX-License-Identifier: Apache-2.0
// Optimizer steps on contiguous tiles: gradient in, parameter and state updated, and a rounded copy
// of the parameter written, in one pass.
#pragma once

#include <cstddef>

#include "backend/cpu/simd/convert.h"

namespace epilogue::simd {

// What the formulas of ops/optimizer_steps.cpp need, combined in double and rounded once.
struct AdamScalars {
  float grad_factor;  // unscales, and negates to maximize
  float clip;
  float decay;         // of the parameter, before the update: 1 - lr wd, or 1
  float l2;            // of the parameter, added to the gradient, or 0
  float beta1_weight;  // 1 - beta1
  float beta2;
  float beta2_weight;  // 1 - beta2
  float step_size;     // lr / (1 - beta1^t)
  float inverse_root;  // 1 / sqrt(1 - beta2^t)
  float eps;
};
// All of the kernel's FloatType, except the copy. Null: there is none.
struct AdamTile {
  void* param;
  const void* grad;
  void* exp_avg;
  void* exp_avg_sq;
  void* max_exp_avg_sq;
  void* copy;
};

struct SgdScalars {
  float grad_factor;
  float clip;
  float l2;
  float momentum;
  float dampened;  // 1 - dampening
  float lr;
  bool nesterov;
  bool is_first;
};
struct SgdTile {
  void* param;
  const void* grad;
  void* momentum_buffer;
  void* copy;
};

using AdamKernel = void (*)(const AdamTile& tile, const AdamScalars& with, size_t n);
using SgdKernel = void (*)(const SgdTile& tile, const SgdScalars& with, size_t n);

// Arithmetic is f32. Arrays must not overlap. Nothing is touched beyond n elements and nothing
// needs alignment. One thread: the caller splits.
struct OptimizerKernels {
  const char* target;  // Highway's name of the instruction set, e.g. "AVX3"
  // By type of the parameters. Those of f32 also by type of the copy, f32 meaning none.
  AdamKernel adam_f32[kFloatTypes];
  SgdKernel sgd_f32[kFloatTypes];
  AdamKernel adam_low[kFloatTypes];  // [f32] is null
  SgdKernel sgd_low[kFloatTypes];
};

// The kernels of active_isa(); valid for ever, but fetch them per call (targets.h).
const OptimizerKernels& optimizer_kernels();

}  // namespace epilogue::simd
