// SPDX-License-Identifier: Apache-2.0
// The negative log likelihood of class targets, and its gradient.
#include "backend/cuda/kernels/class_targets.cuh"
#include "backend/cuda/kernels/reduce.cuh"

namespace epilogue::cuda {
namespace {

__device__ float loss_of(const ClassCall& c, int64_t i) {
  const int64_t target = class_of(c, i);
  if (target == kIgnoredClass) return 0.0f;
  const float weight = weight_of(c, target);
  if (target == kInvalidClass) return weight;
  return -weight * load_float(c.self, c.dtype, i * c.row_stride + target * c.class_stride);
}

// One block: batches are some ten thousand samples at most, one number each.
__global__ void __launch_bounds__(kRowThreads) nll_kernel(const __grid_constant__ ClassCall c) {
  __shared__ float shared[kRowThreads / kWarp];
  float sum = 0;
  float total = 0;
  for (int64_t i = threadIdx.x; i < c.n; i += kRowThreads) {
    const float loss = loss_of(c, i);
    if (c.reduction == 0) store_float(loss, c.out, c.dtype, i);
    sum += loss;
    total += weight_of(c, class_of(c, i));
  }
  sum = over_block<SumOf>(sum, shared);
  total = over_block<SumOf>(total, shared);
  if (threadIdx.x != 0) return;
  *c.total_weight = total;
  if (c.reduction != 0) store_float(c.reduction == 1 ? sum / total : sum, c.out, c.dtype, 0);
}

__global__ void __launch_bounds__(kThreads)
    nll_backward_kernel(const __grid_constant__ ClassCall c) {
  const float total = c.reduction == 1 ? *c.total_weight : 1.0f;
  for (int64_t i = first_item(); i < c.n * c.classes; i += item_step()) {
    const int64_t row = i / c.classes;
    const int64_t target = class_of(c, row);
    float slope = target == kInvalidClass ? weight_of(c, target) : 0.0f;
    if (target == i - row * c.classes)
      slope = -weight_of(c, target) * load_float(c.grad, c.grad_dtype, row * c.grad_stride) / total;
    store_float(slope, c.out, c.dtype, i);
  }
}

}  // namespace

cudaError_t launch_nll(const ClassCall& call, cudaStream_t stream) {
  nll_kernel<<<1, kRowThreads, 0, stream>>>(call);
  return cudaGetLastError();
}

cudaError_t launch_nll_backward(const ClassCall& call, cudaStream_t stream) {
  if (call.n * call.classes == 0) return cudaSuccess;
  nll_backward_kernel<<<blocks_for(call.n * call.classes), kThreads, 0, stream>>>(call);
  return cudaGetLastError();
}

}  // namespace epilogue::cuda
