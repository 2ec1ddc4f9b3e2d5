// SPDX-License-Identifier: Apache-2.0
// Kernels of ops on lists of tensors (optimizer steps, the gradients of a model), as functions that
// launch them. A launch takes up to kListTensors tensors: their addresses are its arguments, so
// that no table has to be copied to the device first.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "epilogue/dtype.h"

namespace epilogue::cuda {

inline constexpr int kListTensors = 32;
inline constexpr int kMostLists = 7;
inline constexpr int64_t kListTile = 4096;  // elements of a block

// A launch's share of the lists. Block b works on the tensor i with
// first_block[i] <= b < first_block[i + 1], on its tile b - first_block[i].
struct ListTensors {
  int count = 0;
  DType dtype = DType::f32;  // of the tensors, where an op names no other
  std::array<std::array<void*, kListTensors>, kMostLists> data =
      {};  // [list][tensor]; null: absent
  std::array<int64_t, kListTensors> numel = {};
  std::array<int64_t, kListTensors + 1> first_block = {};

  int64_t blocks() const { return first_block[static_cast<size_t>(count)]; }
};
// The arguments of a kernel, in bytes, on every device.
static_assert(sizeof(ListTensors) <= 4000);

// GradScaler's numbers, on the device; each may be null.
struct StepScale {
  const float* grad_scale = nullptr;
  const float* found_inf = nullptr;  // not 0: nothing is changed
};

// Arithmetic is that of backend/cpu/simd/optimizer.h.
struct AdamStep {
  StepScale scale;
  DType copy_dtype = DType::bf16;
  float sign = 1;  // -1 maximizes
  float clip = 1;
  float lr = 0;
  float decay = 1;  // of the parameter, before the update: 1 - lr wd, or 1
  float l2 = 0;     // of the parameter, added to the gradient, or 0
  float beta1_weight = 0;
  float beta2 = 0;
  float beta2_weight = 0;
  float log_beta1 = 0;
  float log_beta2 = 0;
  float eps = 0;
};
// Lists in the order of AdamList (ops/optimizer_steps.h). Counts the steps first.
cudaError_t launch_adam(const ListTensors& tensors, const AdamStep& step, cudaStream_t stream);

struct SgdStep {
  StepScale scale;
  DType copy_dtype = DType::bf16;
  float sign = 1;
  float clip = 1;
  float l2 = 0;
  float momentum = 0;
  float dampened = 1;  // 1 - dampening
  float lr = 0;
  bool nesterov = false;
  bool is_first = false;
};
// Lists in the order of SgdList.
cudaError_t launch_sgd(const ListTensors& tensors, const SgdStep& step, cudaStream_t stream);

// Every element x of list 0 becomes min(max(x * factor, low), high); NaN stays.
cudaError_t launch_list_map(const ListTensors& tensors, float factor, float low, float high,
                            cudaStream_t stream);
// found_inf = 1 where an element is not finite; every element *= inverse_scale, both on the device.
cudaError_t launch_list_unscale(const ListTensors& tensors, float* found_inf,
                                const float* inverse_scale, cudaStream_t stream);

enum class NormOrder : uint8_t { one, two, largest };
// out[i] = the norm of tensor i of list 0, f32; sums are f64 and always made in the same order.
// `scratch` has tensors.blocks() numbers.
cudaError_t launch_list_norm(const ListTensors& tensors, NormOrder order, double* scratch,
                             float* out, cudaStream_t stream);

}  // namespace epilogue::cuda
