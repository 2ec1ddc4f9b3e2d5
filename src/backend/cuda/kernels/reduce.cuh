// SPDX-License-Identifier: Apache-2.0
// Sums and maxima over the threads of a block, always in the same order.
#pragma once

#include "backend/cuda/kernels/walk.cuh"

namespace epilogue::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kRowThreads = 256;  // of a block that works on one row
inline constexpr unsigned kAllLanes = 0xffffffff;

struct SumOf {
  template <class T>
  __device__ static T join(T a, T b) {
    return a + b;
  }
  static constexpr float kNothing = 0.0f;
};
// NaN wins, as in the reference.
struct LargestOf {
  template <class T>
  __device__ static T join(T a, T b) {
    return a > b || a != a ? a : b;
  }
  static constexpr float kNothing = -__builtin_huge_valf();
};

// Of all threads of a warp; every thread gets the result.
template <class How, class T>
__device__ T over_warp(T x) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2)
    x = How::join(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}

// Of all threads of a one-dimensional block of kRowThreads; every thread gets the result. `shared`
// has kRowThreads / kWarp numbers; all threads call it.
template <class How, class T>
__device__ T over_block(T x, T* shared) {
  x = over_warp<How>(x);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  T all = How::kNothing;
#pragma unroll
  for (int warp = 0; warp < kRowThreads / kWarp; ++warp) all = How::join(all, shared[warp]);
  __syncthreads();  // `shared` may be written again
  return all;
}

}  // namespace epilogue::cuda
