// SPDX-License-Identifier: Apache-2.0
// Conversions between float and the 16-bit storage types, on contiguous arrays.
#pragma once

#include <cstddef>
#include <cstdint>

namespace epilogue::simd {

// The element types that kernels read and write; arithmetic is always in f32. bf16 and f16 are
// stored in uint16_t.
enum class FloatType : uint8_t { f32, bf16, f16 };
inline constexpr size_t kFloatTypes = 3;

constexpr size_t size_of(FloatType type) { return type == FloatType::f32 ? 4 : 2; }

// `in` and `out` must not overlap. Narrowing rounds to nearest even; values beyond the range become
// infinite, f16 denormals are exact, a NaN stays a NaN (quiet, payload cut). Widening is exact.
// Of an element type T and f32: rows of n elements, strides in elements.
template <class T>
using WidenRows = void (*)(const T* in, int64_t in_stride, float* out, int64_t out_stride,
                           size_t rows, size_t n);
template <class T>
using NarrowRows = void (*)(const float* in, int64_t in_stride, T* out, int64_t out_stride,
                            size_t rows, size_t n);

struct ConvertKernels {
  const char* target;  // Highway's name of the instruction set, e.g. "AVX3"
  void (*bf16_to_f32)(const uint16_t* in, float* out, size_t n);
  void (*f32_to_bf16)(const float* in, uint16_t* out, size_t n);
  void (*f16_to_f32)(const uint16_t* in, float* out, size_t n);
  void (*f32_to_f16)(const float* in, uint16_t* out, size_t n);
  NarrowRows<float> f32_rows;
  WidenRows<uint16_t> bf16_to_f32_rows;
  NarrowRows<uint16_t> f32_to_bf16_rows;
  WidenRows<uint16_t> f16_to_f32_rows;
  NarrowRows<uint16_t> f32_to_f16_rows;
};

// The kernels of active_isa(); valid for ever, but fetch them per call (targets.h).
const ConvertKernels& convert_kernels();

// n elements of `type` to or from f32; a plain copy for f32.
void to_f32(FloatType type, const void* in, float* out, size_t n);
void from_f32(FloatType type, const float* in, void* out, size_t n);

// The same for `rows` rows of n elements; strides are in elements.
void to_f32_rows(FloatType type, const void* in, int64_t in_stride, float* out, int64_t out_stride,
                 size_t rows, size_t n);
void from_f32_rows(FloatType type, const float* in, int64_t in_stride, void* out,
                   int64_t out_stride, size_t rows, size_t n);

}  // namespace epilogue::simd
