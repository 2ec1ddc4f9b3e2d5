// SPDX-License-Identifier: Apache-2.0
// bf16 columns as panels of pairs along k.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/panels/pack.h"

namespace epilogue::simd {

// Whether pairs along k lie side by side in memory and may be moved as 32-bit words.
bool pairs_are_words(const PackSource& source, int64_t k);

// n <= width columns of a bf16 matrix as [k_end / 2][width][2]; zeros beyond n and from k to k_end
// (even). `width` is the panels' (pack_kernels().width).
void pack_pairs(const PackSource& source, int64_t n, int64_t k, int64_t k_end, int64_t width,
                uint16_t* out);

// Rows 2 i and 2 i + 1 of [k][width] side by side, column by column; k is even.
template <class T>
void interleave_rows(const T* in, int64_t k, int64_t width, T* out) {
  for (int64_t row = 0; row < k; row += 2, in += 2 * width, out += 2 * width)
    for (int64_t j = 0; j < width; ++j) {
      out[2 * j] = in[j];
      out[2 * j + 1] = in[width + j];
    }
}

}  // namespace epilogue::simd
