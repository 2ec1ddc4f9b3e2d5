// SPDX-License-Identifier: Apache-2.0
// Rows of bf16 in the order in which tile products read them: blocks of k, in a block panels of 32
// rows, in a panel step after step of 32 k, each 2 KiB without a gap.
//
// So a panel's share of a block of k is one run of memory, and so is a block of k of all rows: what
// is read next can be fetched line by line, and rows do not compete for places of the caches as
// rows of a power of two would.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace epilogue::simd {

inline constexpr int64_t kTileRows = 16;
inline constexpr int64_t kTileColumns = 16;
inline constexpr int64_t kTileK = 32;
// A product's block: 2 x 2 tiles.
inline constexpr int64_t kTileBlock = 32;
// Two tiles of rows, or of columns: 32 of them times a step of k.
inline constexpr int64_t kTilePair = kTileBlock * kTileK;
inline constexpr int64_t kTilePairBytes = kTilePair * 2;

struct TiledRows {
  uint16_t* data = nullptr;
  int64_t rows = 0;   // the last panel's others are there, with anything in them
  int64_t steps = 0;  // of kTileK
  int64_t depth = 0;  // steps of a block of k; the last may have fewer

  static int64_t panels_of(int64_t rows) { return (rows + kTileBlock - 1) / kTileBlock; }
  static int64_t bytes_of(int64_t rows, int64_t steps) {
    return panels_of(rows) * steps * kTilePairBytes;
  }

  int64_t panels() const { return panels_of(rows); }
  // Steps of the block of k that begins at `step`.
  int64_t steps_from(int64_t step) const { return std::min(depth, steps - step); }
  // [32 rows][32 of k].
  uint16_t* pair(int64_t panel, int64_t step) const {
    const int64_t in_block = step % depth;
    const int64_t first = step - in_block;
    return data + (first * panels() + panel * steps_from(first) + in_block) * kTilePair;
  }
  // 32 elements of a row.
  uint16_t* line(int64_t row, int64_t step) const {
    return pair(row / kTileBlock, step) + row % kTileBlock * kTileK;
  }

  // A row of k elements; zeros beyond k.
  void set_row(int64_t row, const uint16_t* from, int64_t k) const {
    constexpr size_t bytes = kTileK * sizeof(uint16_t);
    for (int64_t first = 0; first < steps; first += depth) {
      uint16_t* to = line(row, first);
      const int64_t last = first + steps_from(first);
      for (int64_t step = first; step < last; ++step, to += kTilePair) {
        const int64_t left = k - step * kTileK;
        if (left >= kTileK) {
          std::memcpy(to, from + step * kTileK, bytes);
        } else {
          const auto filled = static_cast<size_t>(std::max<int64_t>(left, 0)) * sizeof(uint16_t);
          if (filled > 0) std::memcpy(to, from + step * kTileK, filled);
          std::memset(reinterpret_cast<char*>(to) + filled, 0, bytes - filled);
        }
      }
    }
  }
  // Padding: weights are zero beyond the last of `columns`, and 0 times garbage may be NaN.
  void clear_from(int64_t columns) const {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t k = columns; k < steps * kTileK; ++k) line(row, k / kTileK)[k % kTileK] = 0;
  }
};

}  // namespace epilogue::simd
