// SPDX-License-Identifier: Apache-2.0
// Cross entropy of class targets and its gradient: a warp per row, which reads the logits once from
// memory and again from the caches. The formulas stand in ops/cross_entropy_loss.h.
#include "backend/cuda/kernels/class_targets.cuh"
#include "backend/cuda/kernels/reduce.cuh"

namespace epilogue::cuda {
namespace {

constexpr int kRowsOfBlock = kRowThreads / kWarp;

__device__ float logit(const CrossEntropyCall& c, int64_t row, int64_t k) {
  return load_float(c.self, c.dtype, row * c.row_stride + k * c.class_stride);
}

// Rows of a warp; body(row, lane).
template <class Body>
__device__ void for_each_row(int64_t rows, Body&& body) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock + warp; row < rows;
       row += static_cast<int64_t>(gridDim.x) * kRowsOfBlock)
    body(row, lane);
}

struct RowStats {
  float largest;
  float log_sum;
};
__device__ RowStats stats_of(const CrossEntropyCall& c, int64_t row, int lane) {
  float largest = LargestOf::kNothing;
  for (int64_t k = lane; k < c.classes; k += kWarp)
    largest = LargestOf::join(largest, logit(c, row, k));
  largest = over_warp<LargestOf>(largest);
  float sum = 0;
  for (int64_t k = lane; k < c.classes; k += kWarp) sum += expf(logit(c, row, k) - largest);
  return {largest, logf(over_warp<SumOf>(sum))};
}

// What the smoothing adds: -spread * sum of w[k] log p[k].
__device__ float smoothed_loss(const CrossEntropyCall& c, int64_t row, int lane,
                               const RowStats& stats) {
  float sum = 0;
  for (int64_t k = lane; k < c.classes; k += kWarp)
    sum += weight_of_class(c, k) * (logit(c, row, k) - stats.largest - stats.log_sum);
  return -c.spread * over_warp<SumOf>(sum);
}

__global__ void __launch_bounds__(kRowThreads)
    cross_entropy_kernel(const __grid_constant__ CrossEntropyCall c) {
  for_each_row(c.n, [&](int64_t row, int lane) {
    const RowStats stats = stats_of(c, row, lane);
    const int64_t target = class_of(c, row);
    const float weight = weight_of(c, target);
    float loss = target == kInvalidClass ? weight : 0.0f;
    if (target >= 0 && c.kept != 0)
      loss = -c.kept * weight * (logit(c, row, target) - stats.largest - stats.log_sum);
    if (target >= 0 && c.spread != 0) loss += smoothed_loss(c, row, lane, stats);
    if (lane != 0) return;
    c.stats[2 * row] = stats.largest;
    c.stats[2 * row + 1] = stats.log_sum;
    c.losses[row] = loss;
    if (c.reduction == 0) store_float(loss, c.out, c.dtype, row);
  });
}

// One block: a number per row.
__global__ void __launch_bounds__(kRowThreads)
    cross_entropy_join_kernel(const __grid_constant__ CrossEntropyCall c) {
  __shared__ float shared[kRowThreads / kWarp];
  float sum = 0;
  float total = 0;
  for (int64_t row = threadIdx.x; row < c.n; row += kRowThreads) {
    sum += c.losses[row];
    total += weight_of(c, class_of(c, row));
  }
  sum = over_block<SumOf>(sum, shared);
  total = over_block<SumOf>(total, shared);
  if (threadIdx.x != 0) return;
  *c.total_weight = total;
  if (c.reduction != 0) store_float(c.reduction == 1 ? sum / total : sum, c.out, c.dtype, 0);
}

__global__ void __launch_bounds__(kRowThreads)
    cross_entropy_backward_kernel(const __grid_constant__ CrossEntropyCall c) {
  const float total = c.reduction == 1 ? *c.total_weight : 1.0f;
  for_each_row(c.n, [&](int64_t row, int lane) {
    const int64_t target = class_of(c, row);
    const float main = c.kept * weight_of(c, target);  // NaN where the target is no class
    float weights = 0;
    if (c.spread != 0) {
      for (int64_t k = lane; k < c.classes; k += kWarp) weights += weight_of_class(c, k);
      weights = over_warp<SumOf>(weights);
    }
    const float slope = target == kIgnoredClass
                            ? 0.0f
                            : load_float(c.grad, c.grad_dtype, row * c.grad_stride) / total;
    const RowStats stats = {c.stats[2 * row], c.stats[2 * row + 1]};
    for (int64_t k = lane; k < c.classes; k += kWarp) {
      float dz = 0;
      if (target != kIgnoredClass) {
        const float p = expf(logit(c, row, k) - stats.largest - stats.log_sum);
        const float q = (k == target ? main : 0.0f) + c.spread * weight_of_class(c, k);
        dz = slope * ((main + c.spread * weights) * p - q);
      }
      store_float(dz, c.out, c.dtype, row * c.classes + k);
    }
  });
}

unsigned blocks_of(const CrossEntropyCall& call) {
  return blocks_for((call.n + kRowsOfBlock - 1) / kRowsOfBlock * kRowThreads);
}

}  // namespace

cudaError_t launch_cross_entropy(const CrossEntropyCall& call, cudaStream_t stream) {
  if (call.n != 0) cross_entropy_kernel<<<blocks_of(call), kRowThreads, 0, stream>>>(call);
  cross_entropy_join_kernel<<<1, kRowThreads, 0, stream>>>(call);
  return cudaGetLastError();
}

cudaError_t launch_cross_entropy_backward(const CrossEntropyCall& call, cudaStream_t stream) {
  if (call.n == 0) return cudaSuccess;
  cross_entropy_backward_kernel<<<blocks_of(call), kRowThreads, 0, stream>>>(call);
  return cudaGetLastError();
}

}  // namespace epilogue::cuda
