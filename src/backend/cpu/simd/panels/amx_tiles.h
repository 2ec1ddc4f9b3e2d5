// SPDX-License-Identifier: Apache-2.0
// Products over bf16 panels by tile instructions: 2 x 2 tiles of 16 x 16 sums, two loads of rows
// and two of columns for four multiplications, the least that eight tile registers allow.
//
// The loops are written over a tile unit: the processor's (amx.cpp), or one in plain code,
// with which the tests run them on any machine. A unit has
//
//   configure(rows)        the rows of each of its eight tiles, 0 to 16; a row has 64 bytes
//   release()
//   zero<t>(), load<t>(p, stride_bytes), store<t>(p, stride_bytes)
//   load_once<t>(p, stride_bytes)  the same as load, of what is not read again soon
//   multiply<c, a, b>()    c[i][j] += sum over p of a[i][2p] b[p][2j] + a[i][2p+1] b[p][2j+1]
//   multiply_i8<c, a, b>() the same of four 8-bit integers a[i][4p..] b[p][4j..], in 32 bits
#pragma once

#include <algorithm>
#include <array>

#include "backend/cpu/simd/panels/kernel.h"
#include "backend/cpu/simd/panels/prefetch.h"
#include "backend/cpu/simd/panels/tiled_rows.h"

namespace epilogue::simd {

inline constexpr int64_t kTilesWidth = 64;  // of panels: two blocks of 2 x 2 tiles
using TileRows = std::array<uint8_t, 8>;

// Spreads the pieces of a work over the steps of a block of rows.
class PacedWork {
 public:
  PacedWork(PanelWork* work, int64_t steps)
      : work_(work),
        left_(work == nullptr ? 0 : work->pieces()),
        interval_(left_ == 0 ? steps + 1 : std::max<int64_t>(1, steps / left_)),
        until_(interval_) {}

  void step() {
    if (--until_ > 0) return;
    until_ = interval_;
    if (left_ == 0) return;
    --left_;
    work_->do_piece();
  }
  void finish() {
    for (; left_ > 0; --left_) work_->do_piece();
  }

 private:
  PanelWork* work_;
  int64_t left_;
  int64_t interval_;
  int64_t until_;
};

// kTiled: the panel lies in tiles (of one part alone), else in rows of pairs.
template <class Unit, bool kTiled = false>
class TileProduct {
 public:
  TileProduct(const PanelArgs& args, int parts)
      : args_(args), halves_per_part_(2 / parts), sums_width_(kTilesWidth / parts) {
    if constexpr (kTiled) half_bytes_ = tile_block_bytes(args, 2);
  }

  void run() const {
    constexpr int64_t block = 2 * kTileRows;
    static_assert(block == PanelWork::kBlockRows);
    const int64_t whole = args_.m / block * block;
    if (whole > 0) Unit::configure(shapes(kTileRows, kTileRows));
    for (int64_t row = 0; row < whole; row += block) rows<true>(row);
    if (const int64_t rest = args_.m - whole; rest > 0) {
      Unit::configure(shapes(std::min(rest, kTileRows), std::max<int64_t>(rest - kTileRows, 0)));
      if (rest > kTileRows) {
        rows<true>(whole);
      } else {
        rows<false>(whole);
      }
    }
    Unit::release();
  }

 private:
  // Tiles 0 to 3 are sums, 4 and 5 rows of A, 6 and 7 columns of the panel.
  static TileRows shapes(int64_t first, int64_t second) {
    const auto a = static_cast<uint8_t>(first);
    const auto b = static_cast<uint8_t>(second);
    return {a, a, b, b, a, b, kTileK / 2, kTileK / 2};
  }

  // Rows [row, row + 32), or what is left, with 16 or fewer one tile of them.
  template <bool kTwo>
  void rows(int64_t row) const {
    std::array<float*, 2> to = {args_.sums[0] + row * sums_width_, nullptr};
    if (halves_per_part_ == 1) to[1] = args_.sums[1] + row * sums_width_;
    if (args_.work != nullptr)
      to = args_.work->begin(row, std::min(args_.m - row, PanelWork::kBlockRows));
    PacedWork work(args_.work, 2 * (args_.k / kTileK));
    half<kTwo>(row, 0, to, work);
    half<kTwo>(row, 1, to, work);
    work.finish();
  }

  // These rows times half of the panel's columns.
  template <bool kTwo>
  void half(int64_t row, int64_t half, const std::array<float*, 2>& to, PacedWork& work) const {
    const auto* a = static_cast<const uint16_t*>(args_.a) + row * args_.a_stride;
    const char* b = static_cast<const char*>(args_.panel) + half * half_bytes_;
    const int64_t a_bytes = args_.a_stride * 2;
    const int64_t blocks = args_.m / (2 * kTileRows);
    const NextPanel next(next_of(args_, 2 * blocks), 2 * blocks, row / (2 * kTileRows) * 2 + half,
                         args_.k / kTileK, kTileK * kTilesWidth * 2, 1);
    // Few rows: the panel comes from L3 or memory, and the first to read it fetch both halves.
    const bool streams = 2 * blocks < kLeastPieces && row == 0 && half == 0;
    begin<kTwo>(row, half);
    int64_t until_fetch = 0;
    int64_t group = 0;
    for (int64_t k = 0; k < args_.k; k += kTileK, b += kStepBytes) {
      if (--until_fetch < 0) {
        next.fetch(group++);
        until_fetch = next.group() - 1;
      }
      if (streams) fetch_step(b);
      work.step();
      Unit::template load<4>(a + k, a_bytes);
      Unit::template load<6>(b, kRowBytes);
      Unit::template load<7>(b + kRightBytes, kRowBytes);
      Unit::template multiply<0, 4, 6>();
      Unit::template multiply<1, 4, 7>();
      if constexpr (kTwo) {
        Unit::template load<5>(a + kTileRows * args_.a_stride + k, a_bytes);
        Unit::template multiply<2, 5, 6>();
        Unit::template multiply<3, 5, 7>();
      }
    }
    end<kTwo>(to[static_cast<size_t>(half / halves_per_part_)] + first_column(half));
  }

  // A step's share of what is fetched ahead.
  [[gnu::always_inline]] static void fetch_step(const char* at) {
    constexpr Ahead ahead = ahead_of_stream(sizeof(uint16_t));
    constexpr int64_t line = 64;
    const char* const from = at + ahead.bytes;
    for (int64_t i = 0; i < kStepBytes; i += line) fetch_line<ahead.into>(from + i);
  }

  // Of a half of the panel, in its part's sums.
  int64_t first_column(int64_t half) const { return half % halves_per_part_ * 2 * kTileColumns; }

  template <bool kTwo>
  void begin(int64_t row, int64_t half) const {
    if (!args_.accumulate) {
      Unit::template zero<0>();
      Unit::template zero<1>();
      if constexpr (kTwo) Unit::template zero<2>();
      if constexpr (kTwo) Unit::template zero<3>();
      return;
    }
    const int64_t bytes = sums_width_ * int64_t{sizeof(float)};
    const float* const from =
        args_.sums[half / halves_per_part_] + row * sums_width_ + first_column(half);
    Unit::template load<0>(from, bytes);
    Unit::template load<1>(from + kTileColumns, bytes);
    if constexpr (kTwo) {
      Unit::template load<2>(from + kTileRows * sums_width_, bytes);
      Unit::template load<3>(from + kTileRows * sums_width_ + kTileColumns, bytes);
    }
  }

  template <bool kTwo>
  void end(float* to) const {
    const int64_t bytes = sums_width_ * int64_t{sizeof(float)};
    Unit::template store<0>(to, bytes);
    Unit::template store<1>(to + kTileColumns, bytes);
    if constexpr (kTwo) {
      Unit::template store<2>(to + kTileRows * sums_width_, bytes);
      Unit::template store<3>(to + kTileRows * sums_width_ + kTileColumns, bytes);
    }
  }

  const PanelArgs& args_;
  // The panel's two halves are 32 columns each: of one part, or one of either.
  int64_t halves_per_part_;
  int64_t sums_width_;
  // In the panel: from a half to the other, from a step of k to the next, from a tile to the one
  // beside it, between a tile's rows.
  int64_t half_bytes_ = kTilesWidth * 2;
  static constexpr int64_t kStepBytes = kTiled ? kTilePairBytes : kTileK * kTilesWidth * 2;
  static constexpr int64_t kRightBytes = kTiled ? kTilePairBytes / 2 : kTileColumns * 4;
  static constexpr int64_t kRowBytes = kTiled ? kTileColumns * 4 : kTilesWidth * 4;
};

}  // namespace epilogue::simd
