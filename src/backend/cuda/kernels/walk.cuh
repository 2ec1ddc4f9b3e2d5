// SPDX-License-Identifier: Apache-2.0
// Element by element access to operands of any strides and dtypes.
#pragma once

#include "backend/cuda/kernels/elements.cuh"
#include "backend/cuda/kernels/kernels.h"

namespace epilogue::cuda {

inline constexpr int kThreads = 256;

// i / size. The 32-bit division is some 20 times faster than the 64-bit one.
__device__ inline int64_t quotient_of(int64_t i, int64_t size) {
  if ((i | size) <= 0xffffffff) return static_cast<uint32_t>(i) / static_cast<uint32_t>(size);
  return i / size;
}

// Where element i of a walk lies in each operand.
struct Offsets {
  int64_t of[kMaxOperands];
};
__device__ inline Offsets offsets_of(const Walk& walk, int64_t i) {
  Offsets o{};
  for (int d = walk.rank - 1; d >= 0; --d) {
    const int64_t size = walk.sizes[d];
    int64_t at = i;
    if (d > 0) {
      const int64_t rest = quotient_of(i, size);
      at = i - rest * size;
      i = rest;
    }
#pragma unroll
    for (int k = 0; k < kMaxOperands; ++k)
      if (k <= walk.inputs) o.of[k] += at * walk.operands[k].strides[d];
  }
  return o;
}

// f32, bf16, f16 and booleans.
__device__ inline float load_float(const void* data, DType dtype, int64_t at) {
  switch (dtype) {
    case DType::bf16: return to_float(static_cast<const Bf16*>(data)[at]);
    case DType::f16: return to_float(static_cast<const F16*>(data)[at]);
    case DType::boolean: return to_float(static_cast<const Truth*>(data)[at]);
    default: return static_cast<const float*>(data)[at];
  }
}
__device__ inline void store_float(float x, void* data, DType dtype, int64_t at) {
  switch (dtype) {
    case DType::bf16: return from_float(x, static_cast<Bf16*>(data)[at]);
    case DType::f16: return from_float(x, static_cast<F16*>(data)[at]);
    case DType::boolean: return from_float(x, static_cast<Truth*>(data)[at]);
    default: static_cast<float*>(data)[at] = x;
  }
}

// Blocks that give every one of n items a thread, in a grid that loops where that is too many.
inline unsigned blocks_for(int64_t n) {
  constexpr int64_t kMostBlocks = int64_t{1} << 20;
  const int64_t blocks = (n + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
}

// Loops of a kernel over n items with any grid.
__device__ inline int64_t first_item() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t item_step() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// The C++ type of a floating dtype, as a value of that type: body(Bf16{}).
template <class Body>
cudaError_t for_float_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32: return body(float{});
    case DType::bf16: return body(Bf16{});
    case DType::f16: return body(F16{});
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace epilogue::cuda
