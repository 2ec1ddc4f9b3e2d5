// SPDX-License-Identifier: Apache-2.0
// Products of 8-bit integers against sums of integers, bit for bit.
#pragma once

#include "backend/cpu/simd/panels/integer_rows.h"
#include "backend/cpu/simd/panels/kernel.h"
#include "backend/cpu/simd/panels/pack_tiles.h"
#include "support/test.h"

namespace epilogue::simd {

inline std::vector<float> random_integers(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<int> values(-127, 127);
  std::vector<float> out(static_cast<size_t>(count));
  for (float& x : out) x = static_cast<float>(values(generator));
  return out;
}

// The sum of k products of integers; those of w stand `stride` apart.
EPI_OPTIMIZED inline int32_t integer_dot(const float* a, const float* w, int64_t stride,
                                         int64_t k) {
  int32_t sum = 0;
  for (int64_t q = 0; q < k; ++q)
    sum += static_cast<int32_t>(a[q]) * static_cast<int32_t>(w[q * stride]);
  return sum;
}

// A panel [k / 4][64][4] in tiles of 16 columns.
inline void tile_panel(int64_t k, int parts, std::vector<float>& panel) {
  const std::vector<float> words = panel;
  for (int64_t t = 0; t < 4; ++t)
    for (int64_t row = 0; row < k / 4; ++row)
      std::copy_n(words.begin() + row * 64 + t * 16, 16,
                  panel.begin() +
                      (tile_place(t, parts, k * kTileBlock) + row / 16 * kTilePairBytes) / 4 +
                      row % 16 * 16);
}

// m rows of k integers through one panel of a layout, by `product(args, parts)`: what it gives,
// once and added to 0.5, equals the integers' sums times scales that are powers of two.
inline void expect_integer_product(const PanelLayout& layout, int64_t m, int64_t k, int parts,
                                   const std::function<void(const PanelArgs&, int)>& product) {
  const int64_t depth = layout.padded(k);
  const int64_t width = layout.width;
  std::vector<float> w = random_integers(depth * width, 2);
  std::vector<float> a = random_integers(m * k, 1);
  // The extremes next to each other: what saturates shows.
  for (int64_t q = 0; q < std::min<int64_t>(k, 8); ++q) {
    w[static_cast<size_t>(q * width)] = -127;
    a[static_cast<size_t>(q)] = -127;
  }
  for (int64_t i = 0; i < m; ++i) a[static_cast<size_t>(i * k)] = 127;
  std::fill(w.begin() + k * width, w.end(), 0.0F);
  const std::vector<float> ones(static_cast<size_t>(width), 1);
  std::vector<float> panel(static_cast<size_t>(depth * width / 4 + 16));
  layout.store(w.data(), depth, ones.data(), panel.data());
  if (layout.has_tiles) tile_panel(depth, parts, panel);

  std::vector<float> rows(static_cast<size_t>(m * depth * layout.row_bytes / 4 + 16));
  std::vector<float> row_scales(static_cast<size_t>(m));
  layout.quantise_rows(a.data(), k, m, k, depth, rows.data(), depth, row_scales.data());
  for (int64_t i = 0; i < m; ++i) {
    EXPECT_EQ(row_scales[static_cast<size_t>(i)], 1) << "rows whose largest element is 127";
    row_scales[static_cast<size_t>(i)] = i % 2 == 0 ? 2 : 0.25F;
  }
  std::vector<float> scales(static_cast<size_t>(width));
  for (int64_t j = 0; j < width; ++j) scales[static_cast<size_t>(j)] = j % 3 == 0 ? 4 : 0.5F;
  const int64_t unit = layout.sum_unit > 0 ? layout.sum_unit : depth;
  std::vector<int32_t> sums_of_rows(static_cast<size_t>(m * (depth / unit + 1)));
  if (layout.row_bytes == 1)
    running_sums(reinterpret_cast<const int8_t*>(rows.data()), depth, m, depth, unit,
                 sums_of_rows.data());

  const int64_t each = width / parts;
  std::vector<float> sums[2];
  for (auto& s : sums) s.assign(static_cast<size_t>((m + 1) * each), -7);
  PanelArgs args;
  args.m = m;
  args.k = depth;
  args.a = rows.data();
  args.a_stride = depth;
  args.panel = panel.data();
  args.scales = scales.data();
  args.row_scales = row_scales.data();
  args.row_sums = sums_of_rows.data();
  args.row_sums_stride = depth / unit + 1;
  args.sums[0] = sums[0].data();
  args.sums[1] = parts == 2 ? sums[1].data() : nullptr;
  for (const bool accumulates : {false, true}) {
    args.accumulate = accumulates;
    if (accumulates)
      for (auto& s : sums) std::fill_n(s.begin(), m * each, 0.5F);
    product(args, parts);
    for (int p = 0; p < parts; ++p) {
      for (int64_t j = 0; j < each; ++j)
        ASSERT_EQ(sums[p][static_cast<size_t>(m * each + j)], -7) << "beyond the last row";
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < each; ++j) {
          const int64_t column = p * each + j;
          const int32_t sum = integer_dot(&a[static_cast<size_t>(i * k)],
                                          &w[static_cast<size_t>(column)], width, k);
          float expected = static_cast<float>(sum) * (row_scales[static_cast<size_t>(i)] *
                                                      scales[static_cast<size_t>(column)]);
          if (accumulates) expected += 0.5F;
          ASSERT_EQ(sums[p][static_cast<size_t>(i * each + j)], expected)
              << m << " x " << k << ", part " << p << " of " << parts << " at " << i << ", " << j;
        }
    }
  }
}

inline constexpr int64_t kIntegerRows[] = {1, 2, 5, 6, 7, 16, 17, 33, 70};
inline constexpr int64_t kIntegerDepths[] = {1, 2, 7, 64, 65, 130, 520};

}  // namespace epilogue::simd
