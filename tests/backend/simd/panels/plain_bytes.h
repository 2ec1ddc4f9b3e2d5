// SPDX-License-Identifier: Apache-2.0
// Bytes that 4-bit weights become beside rows of 8 bits, in plain code (i4_kernels.h has the rule).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "backend/cpu/simd/panels/i4_kernels.h"

namespace epilogue::simd {

struct PlainBytes {
  std::vector<int> bytes;     // [k]
  std::vector<float> scales;  // of each kBytesK of k
};

// One column: step(k), and scale(g) and zero(g) of each group.
template <class Step, class Scale, class Zero>
PlainBytes plain_bytes(int64_t k, int64_t size, const Step& step, const Scale& scale,
                       const Zero& zero) {
  PlainBytes out;
  for (int64_t begin = 0; begin < k; begin += kBytesK) {
    const int64_t end = std::min(k, begin + kBytesK);
    float most = 0;
    for (int64_t g = begin / size; g * size < end; ++g) {
      const int reach = std::max<int>(zero(g), kMostSteps - zero(g));
      most = std::max(most, std::abs(scale(g)) * static_cast<float>(reach));
    }
    const float inverse = most >= kLeastReach ? float{kMostByte} * kRatioOne / most : 0;
    out.scales.push_back(most * (1 / float{kMostByte}));
    for (int64_t q = begin; q < end; ++q) {
      const auto ratio = static_cast<int>(std::lrintf(scale(q / size) * inverse));
      const int product = (step(q) - zero(q / size)) * ratio;
      out.bytes.push_back(static_cast<int>(std::floor(double(product) / kRatioOne + 0.5)));
    }
  }
  return out;
}

}  // namespace epilogue::simd
