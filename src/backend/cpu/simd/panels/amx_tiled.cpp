// SPDX-License-Identifier: Apache-2.0
// Products of bf16 by AMX's tiles, with weights that are packed in tiles to be used again and
// again.
#include "backend/cpu/simd/panels/amx_unit.h"
#include "backend/cpu/simd/panels/bf16_pairs.h"
#include "backend/cpu/simd/panels/kernel_list.h"
#include "backend/cpu/simd/panels/tile_product.h"
#include "backend/cpu/simd/scratch.h"
#include "base/assert.h"

namespace epilogue::simd {

const char* decline_amx(const PanelUse& use);
const PanelKernel& amx_kernel();
// Rows as they lie: what few and short products take, for which tiled rows would not pay.
void amx_tiled_one(const PanelArgs& args);

namespace {

#if defined(__x86_64__)

thread_local Scratch row_scratch;

void amx_tiles(const TileArgs& args) { TileLoops<AmxUnit>(args).run(); }

void two_parts(const PanelArgs& args) {
  const int64_t panels = TiledRows::panels_of(args.m);
  const float* const sums = untiled_rows_product<AmxUnit>(args, 2, 2, row_scratch);
  for (int64_t row = 0; row < args.m; ++row)
    for (int64_t block = 0; block < 2; ++block)
      for (int p = 0; p < 2; ++p) {
        const float* const from = sums + (block * panels + row / kTileBlock) * kBlockSums +
                                  (p * kTileBlock + row % kTileBlock) * kTileColumns;
        float* const to = args.sums[p] + row * kTileBlock + block * kTileColumns;
        for (int64_t j = 0; j < kTileColumns; ++j)
          to[j] = args.accumulate ? to[j] + from[j] : from[j];
      }
}

void amx_tiled_two(const PanelArgs& args) {
  args.m < kLeastTileRows ? bf16_tile_pairs_two(args) : two_parts(args);
}

#else

void amx_tiles(const TileArgs&) { EPI_ASSERT(false, "x86-64 only"); }
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
