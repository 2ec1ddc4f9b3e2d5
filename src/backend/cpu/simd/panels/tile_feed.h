// SPDX-License-Identifier: Apache-2.0
// Columns that lie as the caller has them, in tiles right before their products: a part, 32 columns
// times a block of k, is made between the products of the part before, where it costs next to
// nothing, and stays in the nearest caches until it is multiplied. Lines are asked for some time
// before: not many, because rows of a power of two compete for few places of the caches.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/panels/pack.h"
#include "backend/cpu/simd/panels/prefetch.h"
#include "backend/cpu/simd/panels/tile_blocks.h"
#include "backend/cpu/simd/panels/tiled_rows.h"

namespace epilogue::simd {

struct FedColumns {
  PackSource source;  // bf16, from column 0 and k 0 of the product
  int64_t n = 0;
  int64_t k = 0;
  char* memory = nullptr;  // two parts

  static int64_t bytes_of(int64_t depth) { return 2 * depth * kTilePairBytes; }
};

class TileFeed {
 public:
  // Null: the columns lie in tiles, and nothing is fed. `depth`: the most steps of a part.
  TileFeed(const FedColumns* columns, int64_t depth) : columns_(columns), depth_(depth) {}

  bool is_there() const { return columns_ != nullptr; }
  // The first part, at once.
  void begin(const TileUnit& part);
  // The part that was begun before, whole. From here on `next` is made within so many steps;
  // `after` comes then. Without steps: there is none.
  const char* turn(const TileUnit& next, const TileUnit& after, int64_t within);

  [[gnu::always_inline]] void step() {
    for (line_credit_ += line_rate_; line_credit_ >= kOne; line_credit_ -= kOne) ask();
    for (item_credit_ += item_rate_; item_credit_ >= kOne; item_credit_ -= kOne) make();
  }

 private:
  static constexpr int64_t kOne = 256;
  enum class Kind { pairs, squares, any };

  Kind kind_of(const TileUnit& part) const;
  const uint16_t* address(int64_t column, int64_t k) const {
    const PackSource& s = columns_->source;
    return static_cast<const uint16_t*>(s.data) + column * s.outer_stride + k * s.k_stride;
  }
  // Steps of a part that have all their k.
  int64_t whole_steps(const TileUnit& part) const;
  void aim(const TileUnit& part);
  int64_t lines_of(const TileUnit& part) const;
  // Lines [first, last) of a part.
  void aim_lines(const TileUnit& part, int64_t first, int64_t last);
  // The next item, if one is left.
  void make();
  void finish();

  [[gnu::always_inline]] void ask() {
    if (lines_left_ == 0) {
      if (after_lines_ == 0) return;
      aim_lines(after_, 0, after_lines_);
      after_lines_ = 0;
    }
    --lines_left_;
    fetch_line<kIntoL2>(line_);
    line_ += line_stride_;
    if (++in_run_ < run_) return;
    in_run_ = 0;
    line_ += run_end_;
  }

  const FedColumns* columns_;
  int64_t depth_;
  // What is made.
  TileUnit part_ = {};
  Kind kind_ = Kind::any;
  char* out_ = nullptr;
  int64_t items_ = 0;
  int64_t made_ = 0;
  int64_t item_rate_ = 0;
  int64_t item_credit_ = 0;
  // What is asked for: runs of lines, each a stride after the one before; then the first of
  // `after`.
  TileUnit after_ = {};
  int64_t after_lines_ = 0;
  const char* line_ = nullptr;
  int64_t lines_left_ = 0;
  int64_t line_stride_ = 0;
  int64_t run_ = 0;
  int64_t in_run_ = 0;
  int64_t run_end_ = 0;
  int64_t line_rate_ = 0;
  int64_t line_credit_ = 0;
};

}  // namespace epilogue::simd
