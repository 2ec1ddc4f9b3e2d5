// SPDX-License-Identifier: Apache-2.0
// Class targets as the losses' kernels read them. A call has `target`, `target_stride`,
// `ignore_index`, `classes`, `weight` (contiguous, may be null) and `weight_dtype`.
#pragma once

#include "backend/cuda/kernels/walk.cuh"

namespace epilogue::cuda {

inline constexpr int64_t kIgnoredClass = -1;
inline constexpr int64_t kInvalidClass = -2;

template <class LossCall>
__device__ int64_t class_of(const LossCall& c, int64_t i) {
  const int64_t target = c.target[i * c.target_stride];
  if (target == c.ignore_index) return kIgnoredClass;
  return target < 0 || target >= c.classes ? kInvalidClass : target;
}

template <class LossCall>
__device__ float weight_of_class(const LossCall& c, int64_t k) {
  return c.weight == nullptr ? 1.0f : load_float(c.weight, c.weight_dtype, k);
}

// The weight of a sample; NaN where its target is no class.
template <class LossCall>
__device__ float weight_of(const LossCall& c, int64_t target) {
  if (target == kIgnoredClass) return 0.0f;
  if (target == kInvalidClass) return __int_as_float(0x7fffffff);
  return weight_of_class(c, target);
}

}  // namespace epilogue::cuda
