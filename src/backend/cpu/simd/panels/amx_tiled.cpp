// SPDX-License-Identifier: Apache-2.0
// Products of bf16 by AMX's tiles, with weights that are packed in tiles to be used again and
// again.
#include <algorithm>
#include <array>
#include <cstring>

#include "backend/cpu/simd/panels/amx_unit.h"
#include "backend/cpu/simd/panels/bf16_pairs.h"
#include "backend/cpu/simd/panels/kernel_list.h"
#include "backend/cpu/simd/panels/tile_product.h"
#include "backend/cpu/simd/scratch.h"
#include "base/assert.h"

namespace epilogue::simd {

const char* decline_amx(const PanelUse& use);
const PanelKernel& amx_kernel();

namespace {

#if defined(__x86_64__)

thread_local Scratch row_scratch;

void amx_tiles(const TileArgs& args) { TileLoops<AmxUnit>(args).run(); }

// Rows as they lie in memory: tiled first. Callers of many products of the same rows do that
// themselves, once.
class Untiled {
 public:
  Untiled(const PanelArgs& args, int products) : args_(args), products_(products) {}

  void run() const {
    TileArgs tiles;
    tiles.rows.rows = args_.m;
    tiles.rows.steps = tiles.rows.depth = args_.k / kTileK;
    const int64_t row_floats =
        TiledRows::bytes_of(args_.m, tiles.rows.steps) / int64_t{sizeof(float)};
    const int64_t sum_floats = 2 * tiles.rows.panels() * kBlockSums;
    float* const memory = row_scratch.get(static_cast<size_t>(row_floats + sum_floats));
    tiles.rows.data = reinterpret_cast<uint16_t*>(memory);
    for (int64_t i = 0; i < args_.m; ++i)
      tiles.rows.set_row(i, static_cast<const uint16_t*>(args_.a) + i * args_.a_stride, args_.k);
    tiles.weights = {static_cast<const char*>(args_.panel),
                     args_.block_bytes > 0 ? args_.block_bytes : tiles.rows.steps * kTilePairBytes};
    tiles.products = products_;
    tiles.last = tiles.chunk = kTilesWidth / kTileBlock;
    tiles.resident = tiles.rows.steps;
    tiles.sums = memory + row_floats;
    amx_tiles(tiles);
    for (int64_t row = 0; row < args_.m; ++row) finish(row, tiles);
  }

 private:
  // A row to where the caller wants it.
  void finish(int64_t row, const TileArgs& tiles) const {
    const int64_t width = kTilesWidth / products_;  // of a part
    const int64_t each = kTileBlock / products_;    // its columns in a block
    const int64_t panels = tiles.rows.panels();
    std::array<float, kTilesWidth> values;
    for (int64_t block = 0; block < 2; ++block)
      for (int p = 0; p < products_; ++p)
        std::copy_n(tiles.sums + (block * panels + row / kTileBlock) * kBlockSums +
                        (p * kTileBlock + row % kTileBlock) * each,
                    each, values.begin() + p * width + block * each);
    for (int p = 0; p < products_; ++p) {
      float* const sums = args_.sums[p] + row * width;
      float* const part = values.data() + p * width;
      if (args_.accumulate)
        for (int64_t j = 0; j < width; ++j) part[j] += sums[j];
      if (args_.store == nullptr) std::copy_n(part, width, sums);
    }
    if (args_.store != nullptr) store_rows(*args_.store, values.data(), kTilesWidth, row, 1);
  }

  const PanelArgs& args_;
  int products_;
};

void amx_tiled_one(const PanelArgs& args) {
  args.m < kLeastTileRows ? bf16_tile_pairs_one(args) : Untiled(args, 1).run();
}
void amx_tiled_two(const PanelArgs& args) {
  args.m < kLeastTileRows ? bf16_tile_pairs_two(args) : Untiled(args, 2).run();
}

#else

void amx_tiles(const TileArgs&) { EPI_ASSERT(false, "x86-64 only"); }
void amx_tiled_one(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }
void amx_tiled_two(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }

#endif

}  // namespace

const char* decline_amx_tiled(const PanelUse& use) {
  if (use.packs_once) return "needs weights that are packed for many products";
  return decline_amx(use);
}

const PanelKernel& amx_tiled_kernel() {
  static const PanelKernel kernel = [] {
    PanelKernel tiled = amx_kernel();
    tiled.layout.has_tiles = true;
    tiled.one = amx_tiled_one;
    tiled.two = amx_tiled_two;
    tiled.tiles = amx_tiles;
    return tiled;
  }();
  return kernel;
}

}  // namespace epilogue::simd
