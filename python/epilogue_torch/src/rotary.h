// SPDX-License-Identifier: Apache-2.0
// Rotary position embeddings of heads, where they lie.
#pragma once

#include <torch/headeronly/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <span>

#include "tensors.h"

namespace epilogue_torch {

// Heads of one tensor, by [batch, row, head]; a head's columns lie one after the other. y may be x.
struct RotaryHeads {
  const void* x = nullptr;
  void* y = nullptr;
  int64_t count = 0;
  int64_t columns = 0;
  int64_t x_strides[3] = {};
  int64_t y_strides[3] = {};
};

// Cosines and sines of rows, [batch, row].
struct RotaryWaves {
  const void* cos = nullptr;
  const void* sin = nullptr;
  int64_t columns = 0;  // of a head, that turn: an even number
  int64_t cos_strides[2] = {};
  int64_t sin_strides[2] = {};
  bool are_f32 = false;
};

// cos and sin [batch or 1, rows, columns] of that dtype or, is_wide, of f32, for heads of that
// dtype. Nullopt if they are no such tensors.
std::optional<RotaryWaves> waves_of(const Torch& cos, const Torch& sin,
                                    torch::headeronly::ScalarType type, bool is_wide, int64_t batch,
                                    int64_t rows);

// Turns heads of at least as many columns as the waves, Float or BFloat16. is_wide: products are
// f32, and the sum alone is rounded.
void rotate_heads(std::span<const RotaryHeads> parts, const RotaryWaves& waves,
                  torch::headeronly::ScalarType type, bool is_wide, int64_t batch, int64_t rows);

}  // namespace epilogue_torch
