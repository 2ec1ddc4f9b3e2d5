// SPDX-License-Identifier: Apache-2.0
// Copies with conversion between any dtypes and strides, fills, and vectorised casts.
#include "backend/cuda/kernels/walk.cuh"

namespace epilogue::cuda {
namespace {

// An element on its way: integers keep all 64 bits, floating numbers travel as double.
struct Number {
  double value;
  int64_t whole;
  bool is_floating;
};

__device__ Number load(const Operand& from, int64_t at) {
  switch (from.dtype) {
    case DType::f64: return {static_cast<const double*>(from.data)[at], 0, true};
    case DType::i64: return {0, static_cast<const int64_t*>(from.data)[at], false};
    case DType::u8: return {0, static_cast<const uint8_t*>(from.data)[at], false};
    case DType::boolean: return {0, static_cast<const bool*>(from.data)[at] ? 1 : 0, false};
    default: return {load_float(from.data, from.dtype, at), 0, true};
  }
}

// Towards zero; NaN and what does not fit become the smallest int64_t.
__device__ int64_t whole_of(const Number& x) {
  if (!x.is_floating) return x.whole;
  constexpr double kLimit = 9223372036854775808.0;
  const bool fits = x.value >= -kLimit && x.value < kLimit;
  return fits ? static_cast<int64_t>(x.value) : INT64_MIN;
}

// To a float whose rounding to 16 bits is that of `value`: the way is rounded to odd, so that the
// second rounding sees the first one's sticky bit.
__device__ float to_odd(double value) {
  const float toward_zero = __double2float_rz(value);
  if (static_cast<double>(toward_zero) == value || isnan(value) || isinf(toward_zero))
    return toward_zero;
  return __uint_as_float(__float_as_uint(toward_zero) | 1U);
}

__device__ void store(const Number& x, const Operand& to, int64_t at) {
  const double value = x.is_floating ? x.value : static_cast<double>(x.whole);
  switch (to.dtype) {
    case DType::f64: static_cast<double*>(to.data)[at] = value; return;
    case DType::f32:
      static_cast<float*>(to.data)[at] =
          x.is_floating ? static_cast<float>(value) : static_cast<float>(x.whole);
      return;
    case DType::i64: static_cast<int64_t*>(to.data)[at] = whole_of(x); return;
    case DType::u8: static_cast<uint8_t*>(to.data)[at] = static_cast<uint8_t>(whole_of(x)); return;
    case DType::boolean:
      static_cast<bool*>(to.data)[at] = x.is_floating ? x.value != 0 : x.whole != 0;
      return;
    default: store_float(to_odd(value), to.data, to.dtype, at);
  }
}

__global__ void __launch_bounds__(kThreads) copy_strided(const __grid_constant__ Walk walk) {
  for (int64_t i = first_item(); i < walk.numel; i += item_step()) {
    const Offsets o = offsets_of(walk, i);
    store(load(walk.operands[1], o.of[1]), walk.operands[0], o.of[0]);
  }
}

__global__ void __launch_bounds__(kThreads)
    fill_strided(const __grid_constant__ Walk walk, double value) {
  for (int64_t i = first_item(); i < walk.numel; i += item_step())
    store({value, 0, true}, walk.operands[0], offsets_of(walk, i).of[0]);
}

constexpr int kCastCount = 8;

template <class To, class From>
__global__ void __launch_bounds__(kThreads) cast_vector(To* to, const From* from, int64_t n) {
  const int64_t vectors = n / kCastCount;
  for (int64_t v = first_item(); v < vectors; v += item_step()) {
    float x[kCastCount];
    load_vector<From, kCastCount>(from + v * kCastCount, x);
    store_vector<To, kCastCount>(x, to + v * kCastCount);
  }
  if (blockIdx.x != 0) return;
  for (int64_t i = vectors * kCastCount + threadIdx.x; i < n; i += blockDim.x)
    from_float(to_float(from[i]), to[i]);
}

bool is_float_type(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

bool is_cast_line(const Walk& walk) {
  for (int k = 0; k < 2; ++k) {
    const Operand& o = walk.operands[k];
    if (!is_float_type(o.dtype) || reinterpret_cast<uintptr_t>(o.data) % 16 != 0 ||
        !(walk.numel == 1 || (walk.rank == 1 && o.strides[0] == 1)))
      return false;
  }
  return true;
}

}  // namespace

cudaError_t launch_copy(const Walk& walk, cudaStream_t stream) {
  if (walk.numel == 0) return cudaSuccess;
  if (!is_cast_line(walk)) {
    copy_strided<<<blocks_for(walk.numel), kThreads, 0, stream>>>(walk);
    return cudaGetLastError();
  }
  const Operand& to = walk.operands[0];
  const Operand& from = walk.operands[1];
  return for_float_type(to.dtype, [&]<class To>(To) {
    return for_float_type(from.dtype, [&]<class From>(From) {
      const unsigned blocks = blocks_for((walk.numel + kCastCount - 1) / kCastCount);
      cast_vector<To, From><<<blocks, kThreads, 0, stream>>>(
          static_cast<To*>(to.data), static_cast<const From*>(from.data), walk.numel);
      return cudaGetLastError();
    });
  });
}

cudaError_t launch_fill(double value, const Walk& walk, cudaStream_t stream) {
  if (walk.numel == 0) return cudaSuccess;
  fill_strided<<<blocks_for(walk.numel), kThreads, 0, stream>>>(walk, value);
  return cudaGetLastError();
}

}  // namespace epilogue::cuda
