// SPDX-License-Identifier: Apache-2.0
// One step of Adam, AdamW and SGD over lists of parameters. Neither a scale nor an overflow is read
// by the host: a step waits for nothing.
#include "backend/cuda/kernels/lists.cuh"
#include "backend/cuda/kernels/optimizer_math.cuh"
#include "ops/optimizer_lists.h"

namespace epilogue::cuda {
namespace {

__device__ bool is_skipped(const StepScale& scale) {
  return scale.found_inf != nullptr && *scale.found_inf != 0;
}
// The inverse is rounded, as GradScaler's is.
__device__ float inverse_of(const StepScale& scale) {
  return scale.grad_scale == nullptr ? 1.0f : 1.0f / *scale.grad_scale;
}

__global__ void count_steps_kernel(const __grid_constant__ ListTensors tensors, StepScale scale) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < tensors.count && !is_skipped(scale)) *element_of<float>(tensors, kAdamSteps, i) += 1;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    adam_kernel(const __grid_constant__ ListTensors tensors, const __grid_constant__ AdamStep s) {
  if (is_skipped(s.scale)) return;
  const ListTile tile = tile_of_block(tensors);
  T* const param = element_of<T>(tensors, kAdamParams, tile.tensor);
  const T* const grad = element_of<T>(tensors, kAdamGrads, tile.tensor);
  T* const exp_avg = element_of<T>(tensors, kAdamExpAvgs, tile.tensor);
  T* const exp_avg_sq = element_of<T>(tensors, kAdamExpAvgSqs, tile.tensor);
  T* const largest = element_of<T>(tensors, kAdamMaxExpAvgSqs, tile.tensor);
  void* const copy = tensors.data[kAdamCopies][tile.tensor];
  const AdamFactors factors =
      adam_factors(s, inverse_of(s.scale), *element_of<float>(tensors, kAdamSteps, tile.tensor));
  for_each_element(tile, [&](int64_t i) {
    AdamElement e = {to_float(param[i]), to_float(exp_avg[i]), to_float(exp_avg_sq[i]),
                     largest != nullptr ? to_float(largest[i]) : 0.0f};
    adam_element(s, factors, to_float(grad[i]), largest != nullptr, e);
    from_float(e.exp_avg, exp_avg[i]);
    from_float(e.exp_avg_sq, exp_avg_sq[i]);
    if (largest != nullptr) from_float(e.largest, largest[i]);
    from_float(e.param, param[i]);
    if (copy != nullptr) store_float(to_float(param[i]), copy, s.copy_dtype, i);
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    sgd_kernel(const __grid_constant__ ListTensors tensors, const __grid_constant__ SgdStep s) {
  if (is_skipped(s.scale)) return;
  const ListTile tile = tile_of_block(tensors);
  T* const param = element_of<T>(tensors, kSgdParams, tile.tensor);
  const T* const grad = element_of<T>(tensors, kSgdGrads, tile.tensor);
  T* const buffer = element_of<T>(tensors, kSgdMomentumBuffers, tile.tensor);
  void* const copy = tensors.data[kSgdCopies][tile.tensor];
  const float factor = inverse_of(s.scale) * s.sign;
  for_each_element(tile, [&](int64_t i) {
    SgdElement e = {to_float(param[i]), buffer != nullptr ? to_float(buffer[i]) : 0.0f};
    sgd_element(s, factor, to_float(grad[i]), buffer != nullptr, e);
    if (buffer != nullptr) from_float(e.buffer, buffer[i]);
    from_float(e.param, param[i]);
    if (copy != nullptr) store_float(to_float(param[i]), copy, s.copy_dtype, i);
  });
}

unsigned grid_of(const ListTensors& tensors) { return static_cast<unsigned>(tensors.blocks()); }

}  // namespace

cudaError_t launch_adam(const ListTensors& tensors, const AdamStep& step, cudaStream_t stream) {
  count_steps_kernel<<<1, kListTensors, 0, stream>>>(tensors, step.scale);
  if (tensors.blocks() == 0) return cudaGetLastError();
  return for_float_type(tensors.dtype, [&]<class T>(T) {
    adam_kernel<T><<<grid_of(tensors), kThreads, 0, stream>>>(tensors, step);
    return cudaGetLastError();
  });
}

cudaError_t launch_sgd(const ListTensors& tensors, const SgdStep& step, cudaStream_t stream) {
  if (tensors.blocks() == 0) return cudaSuccess;
  return for_float_type(tensors.dtype, [&]<class T>(T) {
    sgd_kernel<T><<<grid_of(tensors), kThreads, 0, stream>>>(tensors, step);
    return cudaGetLastError();
  });
}

}  // namespace epilogue::cuda
