// SPDX-License-Identifier: Apache-2.0
// Matrices of any type and strides for the GEMM's tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "backend/cpu/simd/gemm/gemm.h"
#include "backend/simd/simd_testing.h"

namespace epilogue::simd {

// Scalar conversions of the test's own.
inline float from_bits(FloatType type, uint16_t bits) {
  if (type == FloatType::bf16) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value = 0.0F;
    std::memcpy(&value, &wide, sizeof value);
    return value;
  }
  const int exponent = (bits >> 10) & 31;
  const auto mantissa = static_cast<float>(bits & 1023);
  const float sign = (bits & 0x8000) != 0 ? -1.0F : 1.0F;
  if (exponent == 31) return mantissa == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(mantissa + 1024.0F, exponent - 25);
}

inline double unit_roundoff(FloatType type) {
  if (type == FloatType::f32) return 0x1p-24;
  return type == FloatType::bf16 ? 0x1p-8 : 0x1p-11;
}

// A matrix of any type and strides over its own guarded memory, random in [-1, 1].
struct Matrix {
  Matrix(int64_t rows_, int64_t cols_, FloatType type_, int64_t row_stride_, int64_t col_stride_,
         uint32_t seed)
      : rows(rows_), cols(cols_), type(type_), row_stride(row_stride_), col_stride(col_stride_) {
    const size_t span =
        rows == 0 || cols == 0
            ? 0
            : static_cast<size_t>((rows - 1) * row_stride + (cols - 1) * col_stride + 1);
    const std::vector<float> values = uniform(span, -1.0F, 1.0F, seed);
    bytes.resize(span * size_of(type));
    from_f32(type, values.data(), bytes.data(), span);
  }
  double at(int64_t i, int64_t j) const {
    const size_t index = static_cast<size_t>(i * row_stride + j * col_stride);
    if (type == FloatType::f32) {
      float value = 0.0F;
      std::memcpy(&value, bytes.data() + index * 4, 4);
      return value;
    }
    uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + index * 2, 2);
    return from_bits(type, bits);
  }
  GemmOperand operand() const { return {bytes.data(), type, row_stride, col_stride}; }
  std::vector<double> row(int64_t i) const {
    std::vector<double> values(static_cast<size_t>(cols));
    for (int64_t j = 0; j < cols; ++j) values[static_cast<size_t>(j)] = at(i, j);
    return values;
  }

  int64_t rows;
  int64_t cols;
  FloatType type;
  int64_t row_stride;
  int64_t col_stride;
  std::vector<unsigned char> bytes;
};

}  // namespace epilogue::simd
