// SPDX-License-Identifier: Apache-2.0
// How deep one f32 sum of a product goes before it is added to others.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/panels/kernel.h"
#include "backend/cpu/simd/panels/packed_weights.h"

namespace epilogue::cpu {

// With few rows memory is the limit.
inline constexpr int64_t kFewChainRows = 8;

// Rows of f32 whose sums are as short as those of libraries: on vectors of 512 bits these sum in
// lanes of k up to 15 rows.
constexpr int64_t rows_of_short_sums(int64_t lanes) { return lanes >= 16 ? 15 : kFewChainRows; }

// How deep one f32 sum of `kernel` goes in a chunk of `length`. What bf16 results lose in a whole
// chunk is far below their own rounding.
int64_t sum_depth(const simd::PackedWeights& weights, const simd::PanelKernel& kernel, int64_t rows,
                  int64_t length);

}  // namespace epilogue::cpu
