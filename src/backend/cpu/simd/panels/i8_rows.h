// SPDX-License-Identifier: Apache-2.0
// Where 8-bit weights serve.
#pragma once

#include "backend/cpu/simd/panels/kernel_list.h"

namespace epilogue::simd {

inline const char* decline_i8_weights(const PanelUse& use) {
  // Rows up to which 8-bit weights are faster than what they stand for; twice as many where weights
  // come from memory, not from L3.
  constexpr int64_t kI8Rows = 2;
  constexpr int64_t kCachedWeights = int64_t{16} << 20;
  if (use.precision != Precision::i8) return "needs weights that may be rounded to 8 bits";
  const int64_t most = use.count > kCachedWeights ? 2 * kI8Rows : kI8Rows;
  return use.rows <= most ? nullptr : "needs fewer rows";
}

}  // namespace epilogue::simd
