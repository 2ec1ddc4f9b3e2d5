// SPDX-License-Identifier: Apache-2.0
// Lines of bf16 out of a tile product's sums, with what follows most products: a bias, an
// activation, the product with a gate. A few lines at a time, so that they fit between the steps of
// the next product: a program over tiles of f32 (tile_program.h) would take three times as long.
//
// The activations are good to 3e-4 relative, a tenth of what rounding to bf16
// loses. To be called where cpu_has(CpuFeature::avx512_bf16) only.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/cpu/simd/panels/tiled_rows.h"
#include "pointwise/pointwise_fn.h"

namespace epilogue::simd {

// Elements of a gated or plain activation and its gradients, each pointer null where it is not
// there or not wanted: hidden = f(gate) up, d_gate = d_hidden up f'(gate), d_up = d_hidden f(gate).
// Without up it is 1. Slopes are good to 5e-4 of the largest.
struct HiddenElements {
  const uint16_t* gate = nullptr;
  const uint16_t* up = nullptr;
  const uint16_t* d_hidden = nullptr;
  uint16_t* hidden = nullptr;
  uint16_t* d_gate = nullptr;
  uint16_t* d_up = nullptr;
};

// Which of these a product's sums are.
enum class HiddenSums { gate, up, d_hidden };

struct BlockLines {
  const float* sums = nullptr;  // of a block: [32][32], or [32][16] of the gate and of up
  const float* bias = nullptr;  // one per column; of one product alone; null: none
  uint16_t* out = nullptr;      // of the block's first row and column
  int64_t stride = 0;           // between rows, in elements, of all that is read and written
  int64_t columns = 0;          // that are stored
  // Past the caches: `out` and its stride are whole lines of 64 bytes, and nobody reads them soon.
  bool streams = false;
  // Elements from a line to one that is written a block later, and asked for now; 0: none is.
  int64_t ahead = 0;
  // What a product is added to, of the same place as `out`; null: nothing.
  const uint16_t* addend = nullptr;
  // Of columns, in the order of the sums (32, or 16 of the gate and 16 of up): each sum is taken
  // times its column's. Null: it is not.
  const float* scales = nullptr;
  // Of integer products: `sums` are int32, times the row's scale too. Null: the sums are f32.
  const float* row_scales = nullptr;
  // Of sums of one group of k: what the groups before made, in the sums' order, to which these are
  // added. Null: nothing.
  float* totals = nullptr;
  // Of hidden_lines(): from the block's first element on. What the sums are is not read there.
  HiddenElements hidden;
};
// `rows` lines of a result by common stores, asked for a block ahead; of a result that exceeds the
// caches past them, if they are whole.
void choose_stores(BlockLines& lines, bool is_large, int64_t rows);

// Rows [row, row + rows) of the block. As bf16_pairs.h rounds: to nearest even, denormals to zero.
using LineFunction = void (*)(const BlockLines& lines, int64_t row, int64_t rows);

// totals = sums of the first group, or totals + those of another one.
LineFunction group_lines(int products, bool has_integers, bool is_first);
// out = f(sums + bias), f the identity without a function. Null: there is none for it.
LineFunction plain_lines(std::optional<PointwiseFn> f);
// out = f(gate) * up
LineFunction gated_lines(PointwiseFn f);
// The sums to `out`, unless they are d_hidden; and what follows from them.
LineFunction hidden_lines(PointwiseFn f, HiddenSums sums);

// Elements [begin, begin + n).
using HiddenFunction = void (*)(const HiddenElements& elements, int64_t begin, int64_t n);
// Null: there is none for it.
HiddenFunction hidden_elements(PointwiseFn f);

// After lines with `streams`: only then other threads may be shown that they are there.
void end_streams();

}  // namespace epilogue::simd
