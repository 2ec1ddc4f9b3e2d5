// SPDX-License-Identifier: Apache-2.0
// Element types and vectors of them. Generated programs include this text too (NVRTC has no header
// folder to rely on), so it stands alone.
#pragma once

namespace epilogue::cuda {

struct Bf16 {
  unsigned short bits;
};
struct F16 {
  unsigned short bits;
};

// A boolean: a byte of 0 or 1.
struct Truth {
  unsigned char byte;
};

__device__ inline float to_float(Truth x) { return x.byte != 0 ? 1.0f : 0.0f; }
__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(Bf16 x) {
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
}
__device__ inline float to_float(F16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}

// Rounded to nearest, ties to even; NaN stays NaN.
__device__ inline void from_float(float x, Truth& y) { y.byte = x != 0.0f; }
__device__ inline void from_float(float x, float& y) { y = x; }
__device__ inline void from_float(float x, Bf16& y) {
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
}
__device__ inline void from_float(float x, F16& y) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
}

// Elements that are loaded and stored at once; 16 bytes at most per access.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Vector {
  T elements[kCount];
};

template <class T, int kCount>
__device__ inline void load_vector(const T* from, float (&to)[kCount]) {
  const auto v = *reinterpret_cast<const Vector<T, kCount>*>(from);
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = to_float(v.elements[i]);
}
template <class T, int kCount>
__device__ inline void store_vector(const float (&from)[kCount], T* to) {
  Vector<T, kCount> v;
#pragma unroll
  for (int i = 0; i < kCount; ++i) from_float(from[i], v.elements[i]);
  *reinterpret_cast<Vector<T, kCount>*>(to) = v;
}

}  // namespace epilogue::cuda
