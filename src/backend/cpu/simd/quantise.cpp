// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/quantise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace epilogue::simd {
namespace {

constexpr float kLargest = 127;

// A scale near the smallest float is inexact: hence the clamp. -128 is of steps that somebody else
// made, whose scale here is 1.
float steps_of(float value, float scale) {
  return scale > 0 ? std::clamp(std::nearbyint(value / scale), -kLargest - 1, kLargest) : 0.0F;
}

}  // namespace

void column_scales(const float* in, int64_t k, int64_t width, float* scales) {
  std::fill_n(scales, width, 0.0F);
  for (int64_t row = 0; row < k; ++row)
    for (int64_t j = 0; j < width; ++j) {
      const float magnitude = std::abs(in[row * width + j]);
      const bool keep = magnitude <= scales[j] || std::isnan(scales[j]);
      scales[j] = keep ? scales[j] : magnitude;
    }
  for (int64_t j = 0; j < width; ++j) {
    const bool finite = scales[j] <= std::numeric_limits<float>::max();
    scales[j] = finite ? scales[j] / kLargest : std::numeric_limits<float>::quiet_NaN();
  }
}

void to_i8(const float* in, int64_t k, int64_t width, const float* scales, int8_t* out) {
  for (int64_t row = 0; row < k; ++row)
    for (int64_t j = 0; j < width; ++j)
      out[row * width + j] = static_cast<int8_t>(steps_of(in[row * width + j], scales[j]));
}

void round_to_i8(float* values, int64_t k, int64_t width, const float* scales) {
  for (int64_t row = 0; row < k; ++row)
    for (int64_t j = 0; j < width; ++j)
      values[row * width + j] = steps_of(values[row * width + j], scales[j]) * scales[j];
}

namespace {

template <class T>
void rows_to_integers(float most, const float* in, int64_t in_stride, int64_t m, int64_t k,
                      int64_t k_end, T* out, int64_t stride, float* scales) {
  // Adding 1.5 * 2^23 rounds to an integer in the low bits, which vectorises where lrint does not.
  constexpr float magic = 12582912.0F;
  for (int64_t i = 0; i < m; ++i, in += in_stride, out += stride) {
    float largest = 0;
    float sum = 0;  // NaN or infinite exactly where an element is
    for (int64_t j = 0; j < k; ++j) {
      largest = std::max(largest, std::abs(in[j]));
      sum += in[j] * 0.0F;
    }
    const float inverse = largest > 0 && sum == 0 ? most / largest : 0.0F;
    const bool usable = inverse <= std::numeric_limits<float>::max();
    scales[i] = sum == 0 ? (usable ? largest / most : 0.0F) : sum;
    const float factor = usable && sum == 0 ? inverse : 0.0F;
    for (int64_t j = 0; j < k; ++j) {
      const float value = sum == 0 ? in[j] * factor : 0.0F;
      out[j] =
          static_cast<T>(std::bit_cast<int32_t>(value + magic) - std::bit_cast<int32_t>(magic));
    }
    std::fill(out + k, out + k_end, T{0});
  }
}

}  // namespace

void rows_to_i16(const float* in, int64_t in_stride, int64_t m, int64_t k, int64_t k_end,
                 int16_t* out, int64_t stride, float* scales) {
  rows_to_integers(32767.0F, in, in_stride, m, k, k_end, out, stride, scales);
}

template <class T>
void rows_to_i8(const float* in, int64_t in_stride, int64_t m, int64_t k, int64_t k_end, T* out,
                int64_t stride, float* scales) {
  rows_to_integers(kLargest, in, in_stride, m, k, k_end, out, stride, scales);
}
template void rows_to_i8(const float*, int64_t, int64_t, int64_t, int64_t, int8_t*, int64_t,
                         float*);
template void rows_to_i8(const float*, int64_t, int64_t, int64_t, int64_t, int16_t*, int64_t,
                         float*);

}  // namespace epilogue::simd
