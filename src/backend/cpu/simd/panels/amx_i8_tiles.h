// SPDX-License-Identifier: Apache-2.0
// Products of 8-bit integers by tile instructions: as amx_tiles.h, with twice the k in a tile. Sums
// of 32 bits leave the tiles for a block in L1 and become f32 times both scales there.
#pragma once

#include <algorithm>
#include <array>

#include "backend/cpu/simd/panels/amx_tiles.h"
#include "backend/cpu/simd/panels/w8a8.h"

namespace epilogue::simd {

template <class Unit>
class IntegerTileProduct {
 public:
  IntegerTileProduct(const PanelArgs& args, int parts)
      : args_(args),
        finish_(w8a8_kernels().finish),
        halves_per_part_(2 / parts),
        sums_width_(kTilesWidth / parts) {}

  void run() {
    const int64_t whole = args_.m / kBlock * kBlock;
    if (whole > 0) Unit::configure(shapes(kTileRows, kTileRows));
    for (int64_t row = 0; row < whole; row += kBlock) rows<true>(row, kBlock);
    if (const int64_t rest = args_.m - whole; rest > 0) {
      Unit::configure(shapes(std::min(rest, kTileRows), std::max<int64_t>(rest - kTileRows, 0)));
      if (rest > kTileRows) {
        rows<true>(whole, rest);
      } else {
        rows<false>(whole, rest);
      }
    }
    Unit::release();
  }

 private:
  static constexpr int64_t kBlock = 2 * kTileRows;  // rows, and columns of a half of the panel
  static constexpr int64_t kStepBytes = kQuadsK * kTilesWidth;

  // Tiles 0 to 3 are sums, 4 and 5 rows of A, 6 and 7 columns of the panel.
  static TileRows shapes(int64_t first, int64_t second) {
    const auto a = static_cast<uint8_t>(first);
    const auto b = static_cast<uint8_t>(second);
    return {a, a, b, b, a, b, kQuadsK / 4, kQuadsK / 4};
  }

  template <bool kTwo>
  void rows(int64_t row, int64_t count) {
    std::array<float*, 2> to = {args_.sums[0] + row * sums_width_, nullptr};
    if (halves_per_part_ == 1) to[1] = args_.sums[1] + row * sums_width_;
    if (args_.work != nullptr) to = args_.work->begin(row, count);
    PacedWork work(args_.work, 2 * (args_.k / kQuadsK));
    for (int64_t h = 0; h < 2; ++h) {
      multiply<kTwo>(row, h, work);
      const int64_t part = h / halves_per_part_;
      const int64_t column = h % halves_per_part_ * kBlock;
      const float* const earlier = args_.sums[part] + row * sums_width_ + column;
      finish_({sums_.data(), kBlock, count, kBlock, args_.row_scales + row,
               args_.scales + h * kBlock, args_.accumulate ? earlier : nullptr,
               to[static_cast<size_t>(part)] + column, sums_width_});
    }
    work.finish();
  }

  // These rows times half of the panel's columns.
  template <bool kTwo>
  void multiply(int64_t row, int64_t half, PacedWork& work) {
    const auto* a = static_cast<const int8_t*>(args_.a) + row * args_.a_stride;
    const auto* b = static_cast<const int8_t*>(args_.panel) + half * kBlock * 4;
    constexpr int64_t b_stride = kTilesWidth * 4;
    const int64_t blocks = args_.m / kBlock;
    const NextPanel next(next_of(args_, 2 * blocks), 2 * blocks, row / kBlock * 2 + half,
                         args_.k / kQuadsK, kStepBytes, 1);
    Unit::template zero<0>();
    Unit::template zero<1>();
    if constexpr (kTwo) Unit::template zero<2>();
    if constexpr (kTwo) Unit::template zero<3>();
    int64_t until_fetch = 0;
    int64_t group = 0;
    for (int64_t k = 0; k < args_.k; k += kQuadsK) {
      if (--until_fetch < 0) {
        next.fetch(group++);
        until_fetch = next.group() - 1;
      }
      work.step();
      Unit::template load<4>(a + k, args_.a_stride);
      Unit::template load<6>(b + k * kTilesWidth, b_stride);
      Unit::template load<7>(b + k * kTilesWidth + 4 * kTileColumns, b_stride);
      Unit::template multiply_i8<0, 4, 6>();
      Unit::template multiply_i8<1, 4, 7>();
      if constexpr (kTwo) {
        Unit::template load<5>(a + kTileRows * args_.a_stride + k, args_.a_stride);
        Unit::template multiply_i8<2, 5, 6>();
        Unit::template multiply_i8<3, 5, 7>();
      }
    }
    constexpr int64_t stride = kBlock * int64_t{sizeof(int32_t)};
    Unit::template store<0>(sums_.data(), stride);
    Unit::template store<1>(sums_.data() + kTileColumns, stride);
    if constexpr (kTwo) {
      Unit::template store<2>(sums_.data() + kTileRows * kBlock, stride);
      Unit::template store<3>(sums_.data() + kTileRows * kBlock + kTileColumns, stride);
    }
  }

  const PanelArgs& args_;
  void (*finish_)(const IntegerSums& block);
  // The panel's two halves are 32 columns each: of one part, or one of either.
  int64_t halves_per_part_;
  int64_t sums_width_;
  alignas(64) std::array<int32_t, kBlock * kBlock> sums_;
};

}  // namespace epilogue::simd
