// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/panels/tile_feed.h"

#include <algorithm>

#include "backend/cpu/simd/panels/pack_tiles.h"
#include "base/assert.h"
#include "base/ceil_div.h"

namespace epilogue::simd {
namespace {

// Items of a step: four pairs of rows of k, some 30 instructions; or a tile, some 100, since each
// line of its 16 columns is read once however far apart they are.
constexpr int64_t kPairsOfItem = 4;
constexpr int64_t kItemsOfPairs = kTileK / 2 / kPairsOfItem;
constexpr int64_t kItemsOfSquares = kTileBlock / kTileColumns;

// Lines that are asked for before they are needed: of parts of few steps more, since they pass in a
// shorter time.
constexpr int64_t kLeastAhead = 32;
constexpr int64_t kAheadSteps = 512;

}  // namespace

TileFeed::Kind TileFeed::kind_of(const TileUnit& part) const {
  if (columns_->n - part.block * kTileBlock < kTileBlock) return Kind::any;
  if (columns_->source.outer_stride == 1) return Kind::pairs;
  return columns_->source.k_stride == 1 ? Kind::squares : Kind::any;
}

int64_t TileFeed::whole_steps(const TileUnit& part) const {
  return std::clamp<int64_t>(columns_->k / kTileK - part.step, 0, part.steps);
}

void TileFeed::aim(const TileUnit& part) {
  EPI_ASSERT(part.steps <= depth_, "a part of the feed's memory");
  part_ = part;
  kind_ = kind_of(part);
  char* const memory = columns_->memory;
  out_ = out_ == memory ? memory + depth_ * kTilePairBytes : memory;
  made_ = 0;
  items_ = 0;
  if (kind_ != Kind::any)
    items_ = whole_steps(part) * (kind_ == Kind::pairs ? kItemsOfPairs : kItemsOfSquares);
}

int64_t TileFeed::lines_of(const TileUnit& part) const {
  return kind_of(part) == Kind::any ? 0 : whole_steps(part) * kTileK;
}

void TileFeed::aim_lines(const TileUnit& part, int64_t first, int64_t last) {
  constexpr int64_t kLineBytes = 64;
  const PackSource& s = columns_->source;
  line_ = reinterpret_cast<const char*>(address(part.block * kTileBlock, part.step * kTileK));
  lines_left_ = last - first;
  if (s.outer_stride == 1) {
    line_stride_ = 2 * s.k_stride;
    line_ += first * line_stride_;
    run_ = last;
    run_end_ = in_run_ = 0;
    return;
  }
  // Step by step, a line of each column.
  line_stride_ = 2 * s.outer_stride;
  in_run_ = first % kTileBlock;
  line_ += first / kTileBlock * kLineBytes + in_run_ * line_stride_;
  run_ = kTileBlock;
  run_end_ = kLineBytes - kTileBlock * line_stride_;
}

void TileFeed::make() {
  if (made_ == items_) return;
  const int64_t item = made_++;
  constexpr int64_t tile = kTilePairBytes / 2;
  const int64_t column = part_.block * kTileBlock;
  if (kind_ == Kind::pairs) {
    const int64_t step = item / kItemsOfPairs;
    const int64_t pair = item % kItemsOfPairs * kPairsOfItem;
    char* const to = out_ + step * kTilePairBytes + pair * 64;
    interleave_pairs(address(column, (part_.step + step) * kTileK + 2 * pair),
                     columns_->source.k_stride, kPairsOfItem, to, to + tile);
  } else {
    const int64_t step = item / kItemsOfSquares;
    const int64_t half = item % kItemsOfSquares;
    transpose_square(address(column + half * kTileColumns, (part_.step + step) * kTileK),
                     columns_->source.outer_stride * 2, out_ + step * kTilePairBytes + half * tile);
  }
}

void TileFeed::finish() {
  while (made_ < items_) make();
  const int64_t done = kind_ == Kind::any ? 0 : whole_steps(part_);
  if (done == part_.steps) return;
  const int64_t column = part_.block * kTileBlock;
  const int64_t k = (part_.step + done) * kTileK;
  const PackSource& s = columns_->source;
  pack_tile_block(
      {address(column, std::min(k, columns_->k - 1)), s.type, s.outer_stride, s.k_stride},
      std::min(kTileBlock, columns_->n - column), std::max<int64_t>(columns_->k - k, 0),
      part_.steps - done, out_ + done * kTilePairBytes);
}

void TileFeed::begin(const TileUnit& part) { aim(part); }

const char* TileFeed::turn(const TileUnit& next, const TileUnit& after, int64_t within) {
  finish();
  const char* const made = out_;
  item_rate_ = item_credit_ = line_rate_ = line_credit_ = 0;
  lines_left_ = after_lines_ = 0;
  if (next.steps == 0) {
    part_.steps = items_ = 0;
    return made;
  }
  aim(next);
  within = std::max<int64_t>(within, 1);
  item_rate_ = ceil_div(items_ * kOne, within);
  const int64_t lines = lines_of(next);
  const int64_t ahead = std::max(kLeastAhead, kAheadSteps / within * part_.steps);
  aim_lines(next, std::min(ahead, lines), lines);
  if (after.steps > 0) {
    after_ = after;
    after_lines_ = std::min(ahead, lines_of(after));
  }
  line_rate_ = ceil_div((lines_left_ + after_lines_) * kOne, within);
  return made;
}

}  // namespace epilogue::simd
