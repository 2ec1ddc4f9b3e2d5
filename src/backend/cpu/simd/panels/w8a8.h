// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels of 8-bit weights times rows of integers. Integer sums of 8-bit rows are the
// same on every level, bit for bit: exact, at most 128 * 127 each, and none saturates.
#pragma once

#include <cstdint>
#include <numeric>

#include "backend/cpu/simd/panels/i4_kernels.h"
#include "backend/cpu/simd/panels/kernel_list.h"

namespace epilogue::simd {

// k that sums of 32 bits hold, with room for what dots() takes away: 255 * 127 times as often.
inline constexpr int64_t kW8a8Depth = 65536;
// The same of rows of 16 bits: 128 * 32767 as often.
inline constexpr int64_t kI16RowsDepth = 512;
// PanelLayout::quantise_rows of rows of 16 bits.
void rows_as_i16(const float* in, int64_t in_stride, int64_t m, int64_t k, int64_t k_end, void* out,
                 int64_t stride, float* scales);
// Of k, in the panels of the kernels that multiply four neighbours at once: a tile's row.
inline constexpr int64_t kQuadsK = 64;

// A block of sums: out = float(sums) * row_scales[i] * scales[j] (+ earlier).
struct IntegerSums {
  const int32_t* sums;
  int64_t stride;
  int64_t rows;
  int64_t columns;  // a multiple of 16
  const float* row_scales;
  const float* scales;
  const float* earlier;  // null: none; as `out` lies
  float* out;
  int64_t out_stride;
};

struct W8a8Kernels {
  PanelKernel kernel;       // of pairs
  PanelKernel of_i16_rows;  // the same for rows of 16 bits
  void (*finish)(const IntegerSums& block);
};
// At the level in use.
const W8a8Kernels& w8a8_kernels();

// Null where the use is of 8-bit weights and rows.
const char* decline_others_than_w8a8(const PanelUse& use);

// [k / 4][width][4] of 8-bit integers, rows of 8 bits: what VNNI and the tile instructions read.
PanelLayout w8a8_quads_layout(int64_t width);

// Beside 4-bit weights rows of 8 bits have running sums before every so many k.
constexpr int64_t w4a8_sum_unit(const GroupFormat& format) {
  return std::gcd(format.size, kBytesK);
}
// 4-bit weights times rows of 8 bits by a kernel of 8-bit weights, kBytesK of k after the others:
// the panel is unpacked into that of `inner`, the kernel's layout, in `order`.
void w4a8_product(const PanelArgs& args, const PanelLayout& inner, StepOrder order,
                  PanelFunction kernel);

// The micro-kernels of AVX512-VNNI, to be called where cpu_has(CpuFeature::avx512_vnni) only.
void w8a8_dots_one(const PanelArgs& args);
void w8a8_dots_two(const PanelArgs& args);
// The same of panels in tiles.
void w8a8_tile_dots_one(const PanelArgs& args);
void w8a8_tile_dots_two(const PanelArgs& args);

}  // namespace epilogue::simd
