// SPDX-License-Identifier: Apache-2.0
// The gradients of a model as one list: scaled, clamped, checked, measured.
#include "backend/cuda/kernels/lists.cuh"
#include "backend/cuda/kernels/reduce.cuh"

namespace epilogue::cuda {
namespace {

static_assert(kThreads == kRowThreads, "sums are over the threads that share a tile");

// Written so that NaN passes.
__device__ float clamped(float x, float low, float high) {
  return x < low ? low : x > high ? high : x;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    list_map_kernel(const __grid_constant__ ListTensors tensors, float factor, float low,
                    float high) {
  const ListTile tile = tile_of_block(tensors);
  T* const x = element_of<T>(tensors, 0, tile.tensor);
  for_each_element(
      tile, [&](int64_t i) { from_float(clamped(to_float(x[i]) * factor, low, high), x[i]); });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    list_unscale_kernel(const __grid_constant__ ListTensors tensors, float* found_inf,
                        const float* inverse_scale) {
  const ListTile tile = tile_of_block(tensors);
  T* const x = element_of<T>(tensors, 0, tile.tensor);
  const float inverse = *inverse_scale;
  for_each_element(tile, [&](int64_t i) {
    const float value = to_float(x[i]);
    // Whoever finds one writes the same number.
    if (!isfinite(value)) *found_inf = 1.0f;
    if (inverse != 1.0f) from_float(value * inverse, x[i]);
  });
}

template <NormOrder kOrder>
__device__ double join(double sum, double x) {
  return kOrder == NormOrder::largest ? LargestOf::join(sum, x) : sum + x;
}
template <NormOrder kOrder>
__device__ double join_block(double x, double* shared) {
  if constexpr (kOrder == NormOrder::largest) return over_block<LargestOf>(x, shared);
  return over_block<SumOf>(x, shared);
}

template <class T, NormOrder kOrder>
__global__ void __launch_bounds__(kThreads)
    list_norm_kernel(const __grid_constant__ ListTensors tensors, double* tiles) {
  __shared__ double shared[kRowThreads / kWarp];
  const ListTile tile = tile_of_block(tensors);
  const T* const x = element_of<T>(tensors, 0, tile.tensor);
  double sum = 0;
  for_each_element(tile, [&](int64_t i) {
    const double value = fabs(static_cast<double>(to_float(x[i])));
    sum = join<kOrder>(sum, kOrder == NormOrder::two ? value * value : value);
  });
  sum = join_block<kOrder>(sum, shared);
  if (threadIdx.x == 0) tiles[blockIdx.x] = sum;
}

// Block i adds the tiles of tensor i.
template <NormOrder kOrder>
__global__ void __launch_bounds__(kThreads)
    list_norm_join_kernel(const __grid_constant__ ListTensors tensors, const double* tiles,
                          float* out) {
  __shared__ double shared[kRowThreads / kWarp];
  double sum = 0;
  for (int64_t b = tensors.first_block[blockIdx.x] + threadIdx.x;
       b < tensors.first_block[blockIdx.x + 1]; b += kThreads)
    sum = join<kOrder>(sum, tiles[b]);
  sum = join_block<kOrder>(sum, shared);
  if (threadIdx.x == 0)
    out[blockIdx.x] = static_cast<float>(kOrder == NormOrder::two ? sqrt(sum) : sum);
}

template <NormOrder kOrder>
cudaError_t launch_norm_of(const ListTensors& tensors, double* scratch, float* out,
                           cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(tensors.blocks());
  const cudaError_t status = for_float_type(tensors.dtype, [&]<class T>(T) {
    if (blocks != 0) list_norm_kernel<T, kOrder><<<blocks, kThreads, 0, stream>>>(tensors, scratch);
    return cudaGetLastError();
  });
  if (status != cudaSuccess) return status;
  list_norm_join_kernel<kOrder>
      <<<static_cast<unsigned>(tensors.count), kThreads, 0, stream>>>(tensors, scratch, out);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_list_map(const ListTensors& tensors, float factor, float low, float high,
                            cudaStream_t stream) {
  if (tensors.blocks() == 0) return cudaSuccess;
  return for_float_type(tensors.dtype, [&]<class T>(T) {
    list_map_kernel<T><<<static_cast<unsigned>(tensors.blocks()), kThreads, 0, stream>>>(
        tensors, factor, low, high);
    return cudaGetLastError();
  });
}

cudaError_t launch_list_unscale(const ListTensors& tensors, float* found_inf,
                                const float* inverse_scale, cudaStream_t stream) {
  if (tensors.blocks() == 0) return cudaSuccess;
  return for_float_type(tensors.dtype, [&]<class T>(T) {
    list_unscale_kernel<T><<<static_cast<unsigned>(tensors.blocks()), kThreads, 0, stream>>>(
        tensors, found_inf, inverse_scale);
    return cudaGetLastError();
  });
}

cudaError_t launch_list_norm(const ListTensors& tensors, NormOrder order, double* scratch,
                             float* out, cudaStream_t stream) {
  switch (order) {
    case NormOrder::one: return launch_norm_of<NormOrder::one>(tensors, scratch, out, stream);
    case NormOrder::two: return launch_norm_of<NormOrder::two>(tensors, scratch, out, stream);
    default: return launch_norm_of<NormOrder::largest>(tensors, scratch, out, stream);
  }
}

}  // namespace epilogue::cuda
