// SPDX-License-Identifier: Apache-2.0
// What panels look like. A panel holds `width` columns of B, [k][width], so that a micro-kernel
// streams it.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/convert.h"

namespace epilogue::simd {

// How exactly panels hold weights.
enum class Precision : uint8_t {
  same,  // as they are
  i8,    // rounded to 8-bit integers times a scale per column: the largest magnitude / 127
};

// Kernels of one layout share packed weights.
struct PanelLayout {
  int64_t width = 0;         // columns of a panel
  int64_t k_unit = 1;        // k is padded with zeros to a multiple of it
  int64_t weight_bytes = 4;  // of one weight
  bool has_scales = false;   // weights are integers times a scale per column
  // Pairs of bf16 neighbours along k lie side by side, column by column: where they do in memory
  // too, they are packed as words of 32 bits.
  bool has_pairs = false;
  // Writes a panel from its values, [k][width] of f32. Null: they are the panel.
  void (*store)(const float* values, int64_t k, const float* scales, void* panel) = nullptr;

  FloatType rows = FloatType::f32;  // A's rows, k contiguous, ...
  // ... for integer kernels made into integers and a scale for each row, zeros from k to k_end, as
  // rows_to_i16() does. Null: they are read as they are.
  void (*quantise_rows)(const float* in, int64_t in_stride, int64_t m, int64_t k, int64_t k_end,
                        void* out, int64_t stride, float* scales) = nullptr;
  int64_t row_bytes = 4;  // of an element of A's rows, as the kernel reads it
  // How much of k one call of a kernel may sum: integers do not overflow. 0: any.
  int64_t most_k = 0;

  bool operator==(const PanelLayout&) const = default;

  // Panels for rows of k elements hold so many.
  constexpr int64_t padded(int64_t k) const { return (k + k_unit - 1) / k_unit * k_unit; }
};

// Columns of panels of pairs, and of AVX-512's.
inline constexpr int64_t kPairsWidth = 64;

}  // namespace epilogue::simd
