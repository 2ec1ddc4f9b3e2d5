// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/quantise.h"

#include <algorithm>
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

}  // namespace epilogue::simd
