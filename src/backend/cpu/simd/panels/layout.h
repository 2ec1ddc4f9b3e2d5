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
  i4,    // rounded to 4-bit integers, scaled by groups along k (GroupFormat)
};

// 4-bit weights: w[k][j] = (steps[k][j] - zero) * scale, one scale (and zero) per column and group.
struct GroupFormat {
  int64_t size = 128;  // of k; a multiple of 32
  bool has_zeros = false;
  FloatType scales = FloatType::bf16;  // or f16
  bool operator==(const GroupFormat&) const = default;
};
// Where the format has no zeros.
inline constexpr uint8_t kMiddleStep = 8;
inline constexpr uint8_t kMostSteps = 15;

// What weights are rounded to before they are packed.
struct Rounding {
  Precision to = Precision::same;
  GroupFormat groups = {};  // of Precision::i4
  bool operator==(const Rounding&) const = default;
};

// Kernels of one layout share packed weights.
struct PanelLayout {
  int64_t width = 0;         // columns of a panel
  int64_t k_unit = 1;        // k is padded with zeros to a multiple of it
  int64_t weight_bytes = 4;  // of one weight
  bool has_scales = false;   // weights are integers times a scale per column
  bool has_groups = false;   // weights are of 4 bits, group after group of k (group_panel.h)
  // Pairs of bf16 neighbours along k lie side by side, column by column: where they do in memory
  // too, they are packed as words of 32 bits.
  bool has_pairs = false;
  // Pairs of 16 bits or quads of 8 in tiles (tile_blocks.h): a panel's 64 columns are two blocks of
  // 32, each of all k, step after step two tiles of 16 columns; of two products a block has 16
  // columns of either.
  bool has_tiles = false;
  // Writes a panel from its values, [k][width] of f32. Null: they are the panel.
  void (*store)(const float* values, int64_t k, const float* scales, void* panel) = nullptr;

  FloatType rows = FloatType::f32;  // A's rows, k contiguous, ...
  // ... for integer kernels made into integers and a scale for each row, zeros from k to k_end, as
  // QuantiseKernels do. Null: they are read as they are.
  void (*quantise_rows)(const float* in, int64_t in_stride, int64_t m, int64_t k, int64_t k_end,
                        void* out, int64_t stride, float* scales) = nullptr;
  // Once their running sums are known, `count` integers lie anew, in their place, as the kernel
  // reads them. Null: as they are.
  void (*arrange_rows)(void* rows, int64_t count) = nullptr;
  int64_t row_bytes = 4;  // of an element of A's rows, as the kernel reads it
  // How much of k one call of a kernel may sum: integers do not overflow. 0: any.
  int64_t most_k = 0;
  // Kernels of integer rows read running sums of these, one before every `sum_unit` of k. 0: none.
  int64_t sum_unit = 0;

  bool operator==(const PanelLayout&) const = default;
  // Whether panels of the one are panels of the other, whatever rows their kernels read.
  constexpr bool holds_weights_as(const PanelLayout& o) const {
    return width == o.width && k_unit == o.k_unit && weight_bytes == o.weight_bytes &&
           has_scales == o.has_scales && has_groups == o.has_groups && has_pairs == o.has_pairs &&
           has_tiles == o.has_tiles && store == o.store;
  }

  // Panels for rows of k elements hold so many.
  constexpr int64_t padded(int64_t k) const { return (k + k_unit - 1) / k_unit * k_unit; }
};

// Columns of panels of pairs, and of AVX-512's.
inline constexpr int64_t kPairsWidth = 64;

}  // namespace epilogue::simd
