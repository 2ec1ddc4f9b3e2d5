// SPDX-License-Identifier: Apache-2.0
// Sums over any dimensions, of elements or of squared differences. A block has kColumns results at
// a time and shares the elements of each among its rows of threads; few results of many elements
// are cut into parts, which a second launch adds. The order is fixed: the same input gives the same
// bits.
#include <algorithm>

#include "backend/cuda/kernels/reduce.cuh"

namespace epilogue::cuda {
namespace {

constexpr int kBlockThreads = 256;
// Blocks that keep every multiprocessor of the largest devices busy.
constexpr int64_t kEnoughBlocks = 528;
// Elements of a part at least: a second launch must be worth it.
constexpr int64_t kPartElements = 512;

// Elements that a thread loads before it adds them: one at a time would wait for memory each time.
constexpr int kAhead = 8;

// Results of a block: neighbouring results in neighbouring threads, unless the elements of one are
// neighbours.
int columns_of(const ReduceShape& shape, const ReduceOperand& a) {
  const bool elements_are_neighbours =
      shape.reduced_rank > 0 && a.reduced_strides[shape.reduced_rank - 1] == 1;
  return elements_are_neighbours || shape.outs == 1 ? 1 : kWarp;
}

int64_t parts_of(const ReduceShape& shape, int columns) {
  const int64_t blocks = (shape.outs + columns - 1) / columns;
  const int64_t most = (shape.count + kPartElements - 1) / kPartElements;
  return std::max<int64_t>(1, std::min(kEnoughBlocks / std::max<int64_t>(blocks, 1), most));
}

__device__ int64_t offset(int64_t i, int rank, const std::array<int64_t, kMaxDims>& sizes,
                          const std::array<int64_t, kMaxDims>& strides) {
  int64_t at = 0;
  for (int d = rank - 1; d > 0; --d) {
    const int64_t rest = quotient_of(i, sizes[d]);
    at += (i - rest * sizes[d]) * strides[d];
    i = rest;
  }
  return rank > 0 ? at + i * strides[0] : at;
}

template <int kColumns, bool kSquaredDifference>
__global__ void __launch_bounds__(kBlockThreads)
    sum_kernel(const __grid_constant__ ReduceShape shape, const __grid_constant__ ReduceOperand a,
               const __grid_constant__ ReduceOperand b, float scale, void* out, DType out_dtype) {
  constexpr int kRows = kBlockThreads / kColumns;
  __shared__ float sums[kRows][kColumns];
  const int column = threadIdx.x % kColumns;
  const int row = threadIdx.x / kColumns;
  const int64_t o = static_cast<int64_t>(blockIdx.x) * kColumns + column;
  const int64_t part = (shape.count + gridDim.y - 1) / gridDim.y;
  const int64_t begin = part * blockIdx.y;
  const int64_t end = min(begin + part, shape.count);
  float sum = 0;
  if (o < shape.outs) {
    const int64_t base_a = offset(o, shape.kept_rank, shape.kept_sizes, a.kept_strides);
    const int64_t base_b =
        kSquaredDifference ? offset(o, shape.kept_rank, shape.kept_sizes, b.kept_strides) : 0;
    const auto element = [&](int64_t i) {
      const float x = load_float(
          a.data, a.dtype,
          base_a + offset(i, shape.reduced_rank, shape.reduced_sizes, a.reduced_strides));
      if constexpr (!kSquaredDifference) return x;
      const float d = x - load_float(b.data, b.dtype,
                                     base_b + offset(i, shape.reduced_rank, shape.reduced_sizes,
                                                     b.reduced_strides));
      return d * d;
    };
    int64_t i = begin + row;
    for (; i + (kAhead - 1) * kRows < end; i += kAhead * kRows) {
      float ahead[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) ahead[k] = element(i + k * kRows);
#pragma unroll
      for (int k = 0; k < kAhead; ++k) sum += ahead[k];
    }
    for (; i < end; i += kRows) sum += element(i);
  }
  sums[row][column] = sum;
  __syncthreads();
  for (int half = kRows / 2; half > 0; half /= 2) {
    if (row < half) sums[row][column] += sums[row + half][column];
    __syncthreads();
  }
  if (row == 0 && o < shape.outs)
    store_float(sums[0][column] * scale, out, out_dtype, blockIdx.y * shape.outs + o);
}

template <bool kSquaredDifference>
cudaError_t launch(const ReduceShape& shape, const ReduceOperand& a, const ReduceOperand& b,
                   float scale, void* out, DType out_dtype, int64_t parts, cudaStream_t stream) {
  const int columns = columns_of(shape, a);
  const dim3 grid(static_cast<unsigned>((shape.outs + columns - 1) / columns),
                  static_cast<unsigned>(parts));
  if (columns == 1) {
    sum_kernel<1, kSquaredDifference>
        <<<grid, kBlockThreads, 0, stream>>>(shape, a, b, scale, out, out_dtype);
  } else {
    sum_kernel<kWarp, kSquaredDifference>
        <<<grid, kBlockThreads, 0, stream>>>(shape, a, b, scale, out, out_dtype);
  }
  return cudaGetLastError();
}

}  // namespace

int64_t sum_scratch_floats(const ReduceShape& shape, const ReduceOperand& a) {
  const int64_t parts = parts_of(shape, columns_of(shape, a));
  return parts == 1 ? 0 : parts * shape.outs;
}

cudaError_t launch_sum(const ReduceShape& shape, const ReduceOperand& a, const ReduceOperand& b,
                       float scale, void* out, DType out_dtype, float* scratch,
                       cudaStream_t stream) {
  if (shape.outs == 0) return cudaSuccess;
  const int64_t parts = parts_of(shape, columns_of(shape, a));
  const bool in_parts = parts > 1;
  void* const target = in_parts ? scratch : out;
  const DType target_dtype = in_parts ? DType::f32 : out_dtype;
  const float target_scale = in_parts ? 1.0f : scale;
  const cudaError_t status =
      b.data != nullptr
          ? launch<true>(shape, a, b, target_scale, target, target_dtype, parts, stream)
          : launch<false>(shape, a, b, target_scale, target, target_dtype, parts, stream);
  if (status != cudaSuccess || !in_parts) return status;
  ReduceShape second;
  second.outs = shape.outs;
  second.count = parts;
  second.kept_rank = 1;
  second.reduced_rank = 1;
  second.kept_sizes[0] = shape.outs;
  second.reduced_sizes[0] = parts;
  ReduceOperand sums;
  sums.data = scratch;
  sums.kept_strides[0] = 1;
  sums.reduced_strides[0] = shape.outs;
  return launch<false>(second, sums, {}, scale, out, out_dtype, 1, stream);
}

}  // namespace epilogue::cuda
