// SPDX-License-Identifier: Apache-2.0
// How a block finds its tile of a list.
#pragma once

#include "backend/cuda/kernels/lists.h"
#include "backend/cuda/kernels/walk.cuh"

namespace epilogue::cuda {

struct ListTile {
  int tensor;
  int64_t begin;
  int64_t end;
};
__device__ inline ListTile tile_of_block(const ListTensors& tensors) {
  int i = 0;
  while (tensors.first_block[i + 1] <= blockIdx.x) ++i;
  const int64_t begin = (blockIdx.x - tensors.first_block[i]) * kListTile;
  return {i, begin, min(begin + kListTile, tensors.numel[i])};
}

// body(i) for the elements of the block's tile that are this thread's.
template <class Body>
__device__ inline void for_each_element(const ListTile& tile, Body&& body) {
  for (int64_t i = tile.begin + threadIdx.x; i < tile.end; i += kThreads) body(i);
}

template <class T>
__device__ inline T* element_of(const ListTensors& tensors, int list, int tensor) {
  return static_cast<T*>(tensors.data[list][tensor]);
}

}  // namespace epilogue::cuda
