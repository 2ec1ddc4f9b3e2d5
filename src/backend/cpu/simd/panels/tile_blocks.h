// SPDX-License-Identifier: Apache-2.0
// A product of tiled rows with weights in tiles, as its kernel gets it, and how it is cut into
// blocks for a machine's caches.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/panels/block_lines.h"
#include "backend/cpu/simd/panels/tiled_rows.h"

namespace epilogue::simd {

// Fewer rows go to the dot-product kernels, which stream the same panels faster: memory is the
// limit, and a tile of few rows leaves the tile unit idle.
inline constexpr int64_t kLeastTileRows = 5;
// Sums of a product's block.
inline constexpr int64_t kBlockSums = kTileBlock * kTileBlock;

// Weights in tiles (PanelLayout::has_tiles): blocks of 32 columns, each of all k, step after step.
struct TiledColumns {
  const char* data = nullptr;  // from the product's first k on
  int64_t block_bytes = 0;     // of 32 columns

  const char* at(int64_t block, int64_t step) const {
    return data + block * block_bytes + step * kTilePairBytes;
  }
};

// A block of k of a block of columns, as the loops go through them.
struct TileUnit {
  int64_t block = 0;
  int64_t step = 0;
  int64_t steps = 0;  // 0: none
};

class GroupColumns;

// Sums of one group of k, for weights that have a scale for each of their groups.
struct GroupSums {
  const float* scales = nullptr;  // of the block's columns, in the order of its sums
  float* totals = nullptr;        // [32 x 32]: what the groups before made
  bool is_first = false;
  bool is_last = false;
};

// Work on vectors that is done in pieces between tile products: the tile unit goes on meanwhile, so
// that it costs little time of its own.
class TileWork {
 public:
  virtual ~TileWork() = default;
  // Where the sums of a block go: 32 rows of 32 columns, or of two products' 16 each, one after the
  // other; aligned to a line of the caches.
  virtual float* sums() = 0;
  // The sums of this block of columns and panel of rows are there before the first of its pieces is
  // asked for. All pieces of the block before are done. Returns the block's rows as lines(), or 0
  // where it has pieces() instead.
  virtual int64_t ready(int64_t block, int64_t panel) = 0;
  // The same where the sums are of one group, which TileArgs::group_steps asks for.
  virtual int64_t ready_group(int64_t block, int64_t panel, const GroupSums& group);
  virtual int64_t pieces() const = 0;
  virtual void do_piece() = 0;

  // What makes lines of the block at hand: called right between the products.
  LineFunction line_function = nullptr;
  BlockLines lines;
};

struct FedColumns;  // tile_feed.h

struct TileArgs {
  TiledRows rows;
  TiledColumns weights;
  const FedColumns* fed = nullptr;  // instead of `weights`: columns that are tiled meanwhile
  // Instead of `weights`: columns that are unpacked on their way.
  GroupColumns* columns = nullptr;
  // Steps of k whose sums are integers of their own, a divisor of the rows' depth where this is not
  // all of k; 0: one sum takes in all of k. The work adds them up, in `waiting`.
  int64_t group_steps = 0;
  int products = 1;
  int64_t first = 0;  // blocks of columns [first, last)
  int64_t last = 0;
  int64_t chunk = 1;     // blocks whose sums wait for more of k
  int64_t resident = 0;  // steps of a block of columns that stay in L1
  bool fetches_rows = false;
  bool is_from_memory = false;  // the weights come from there, not from a cache
  const void* next = nullptr;   // columns that are read after the last; null: nothing is known
  float* waiting = nullptr;     // [chunk][panels][32 x 32], where k is cut
  // Finished sums go to work's pieces, or here: [last - first][panels][32 x 32].
  TileWork* work = nullptr;
  bool overlaps = true;  // the pieces run between products, else after those of their own block
  float* sums = nullptr;
};
using TileFunction = void (*)(const TileArgs& args);

// Blocks of columns whose sums wait for more of k, where rows exceed L2.
inline constexpr int64_t kTileChunk = 12;

// For rows [panels x 32][steps x 32] and a core's caches.
struct TileBlocks {
  int64_t chunk = 1;
  int64_t resident = 0;
  bool fetches_rows = false;
};
TileBlocks tile_blocks(int64_t panels, int64_t steps, int64_t columns);
// Cuts a call of these rows, columns and groups so. Returns the floats of sums that wait for more
// of k.
int64_t choose_blocks(TileArgs& args);
// Steps of a block of k (TiledRows::depth), a multiple of `unit`; `buffers`: blocks of the columns
// that L1 holds at once.
int64_t tile_depth(int64_t steps, int64_t unit = 1, int64_t buffers = 1);
// The same where columns are fed: two parts of them pass L1 beside the rows.
int64_t fed_tile_depth(int64_t steps);
// Whether a result of so many bytes is written past the caches: common stores read each line first,
// and where that takes long, tile products wait behind them. From 4 x L2 on it pays even where the
// result is read right after.
bool exceeds_caches(int64_t bytes);
// Weights of so many bytes come from memory at each call.
bool come_from_memory(int64_t weight_bytes);
// Rows that a core takes at a time through weights of depth k.
int64_t tile_block_rows(int64_t k);
// Rows that all cores better take together, each through columns of its own: where weights of depth
// k come from memory, and rows that use them often enough would not stay in L2 anyway; and where
// weights are unpacked, which takes long, and is shared by all rows. 0: nowhere.
int64_t shared_tile_rows(int64_t k, int64_t weight_bytes, bool is_unpacked);

}  // namespace epilogue::simd
