// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/panels/tile_blocks.h"

#include "base/assert.h"
#include "base/caches.h"
#include "base/ceil_div.h"

namespace epilogue::simd {
namespace {

struct CoreCaches {
  int64_t l1;
  int64_t l2;
};

// Cached; reads system files. Where they say nothing, the least that cores with tiles have.
const CoreCaches& core_caches() {
  static const CoreCaches caches = [] {
    const Caches found = cpu_caches();
    return CoreCaches{found.l1d_bytes > 0 ? int64_t{found.l1d_bytes} : int64_t{48} << 10,
                      found.l2_bytes > 0 ? int64_t{found.l2_bytes} : int64_t{2} << 20};
  }();
  return caches;
}

// Rows pass a core's weights of a block in L1 again and again: beside the lines on their way
// through it, two thirds of it keep their weights.
int64_t resident_steps() { return core_caches().l1 * 2 / 3 / kTilePairBytes; }

}  // namespace

int64_t TileWork::ready_group(int64_t, int64_t, const GroupSums&) {
  EPI_ASSERT(false, "work on sums of groups");
  return 0;
}

int64_t tile_depth(int64_t steps, int64_t unit, int64_t buffers) {
  // All of k where L1 holds most of it: sums then never wait.
  if (buffers * steps * kTilePairBytes <= core_caches().l1) return std::max<int64_t>(steps, 1);
  const int64_t most = std::max<int64_t>(1, resident_steps() / buffers);
  return ceil_div(ceil_div(steps, ceil_div(steps, most)), unit) * unit;
}

int64_t fed_tile_depth(int64_t steps) {
  const int64_t depth = tile_depth(steps);
  return depth == steps ? depth : ceil_div(steps, ceil_div(steps, resident_steps() * 3 / 4));
}

TileBlocks tile_blocks(int64_t panels, int64_t steps, int64_t columns) {
  TileBlocks blocks;
  blocks.resident = resident_steps();
  const int64_t l2 = core_caches().l2;
  const int64_t row_bytes = panels * steps * kTilePairBytes;
  // Half of L2 holds the rows beside the weights on their way through it.
  if (row_bytes <= l2 / 2 || tile_depth(steps) == steps) return blocks;
  blocks.fetches_rows = true;
  const int64_t block_sums = panels * kTileBlock * kTileBlock * int64_t{sizeof(float)};
  // Each chunk reads all rows from L3 again: sums take a fifth of L2, or twice that for kTileChunk.
  const int64_t most = std::max<int64_t>(1, 2 * l2 / 5 / block_sums);
  const int64_t fits = std::clamp(kTileChunk, std::max<int64_t>(1, l2 / 5 / block_sums), most);
  blocks.chunk = ceil_div(columns, ceil_div(columns, fits));
  return blocks;
}

int64_t choose_blocks(TileArgs& args) {
  const TiledRows& rows = args.rows;
  const TileBlocks blocks = tile_blocks(rows.panels(), rows.steps, args.last - args.first);
  args.chunk = blocks.chunk;
  args.resident = blocks.resident;
  args.fetches_rows = blocks.fetches_rows;
  const bool waits = rows.depth < rows.steps || args.group_steps > 0;
  return waits ? args.chunk * rows.panels() * kBlockSums : 0;
}

bool exceeds_caches(int64_t bytes) { return bytes >= 4 * core_caches().l2; }

// A core's share of an L3 is often less than the L3.
bool come_from_memory(int64_t weight_bytes) { return weight_bytes > int64_t{64} << 20; }

int64_t tile_block_rows(int64_t k) {
  // A row costs k x 2 bytes of L2 in which weights pass; each block of rows reads all weights from
  // L3, which more rows hide.
  constexpr int64_t kLeast = 256;
  constexpr int64_t kMost = 384;
  const int64_t fits = core_caches().l2 / 3 / (2 * std::max<int64_t>(k, 1));
  return std::clamp(fits / kTileBlock * kTileBlock, kLeast, kMost);
}

int64_t shared_tile_rows(int64_t k, int64_t weight_bytes, bool is_unpacked) {
  constexpr int64_t kRows = 512;
  if (is_unpacked) return kRows;
  const bool stay = tile_block_rows(k) * k * 2 <= core_caches().l2 / 2;
  return !come_from_memory(weight_bytes) || stay ? 0 : kRows;
}

}  // namespace epilogue::simd
