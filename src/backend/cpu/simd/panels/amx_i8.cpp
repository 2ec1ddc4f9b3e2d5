// SPDX-License-Identifier: Apache-2.0
// Products of 8-bit integers by AMX's tiles, twice those of bf16 in the same time.
#include <array>

#include "backend/cpu/simd/panels/amx_i8_tiles.h"
#include "backend/cpu/simd/panels/amx_unit.h"
#include "backend/cpu/simd/panels/pack.h"
#include "backend/cpu/simd/panels/tile_product.h"
#include "backend/cpu/simd/scratch.h"
#include "base/assert.h"
#include "base/cpu_features.h"

namespace epilogue::simd {
namespace {

// Fewer rows go to the dot products, which stream the same panels faster.
#if defined(__x86_64__)

void amx_i8_one(const PanelArgs& args) {
  if (args.m < kLeastTileRows) return w8a8_dots_one(args);
  IntegerTileProduct<AmxUnit>(args, 1).run();
}
void amx_i8_two(const PanelArgs& args) {
  if (args.m < kLeastTileRows) return w8a8_dots_two(args);
  IntegerTileProduct<AmxUnit>(args, 2).run();
}

void amx_i8_tiles(const TileArgs& args) { TileLoops<AmxIntegerUnit>(args).run(); }

thread_local Scratch tiled_scratch;

template <int kParts>
void tiled_product(const PanelArgs& args) {
  if (args.m < kLeastTileRows)
    return kParts == 1 ? w8a8_tile_dots_one(args) : w8a8_tile_dots_two(args);
  const int64_t panels = TiledRows::panels_of(args.m);
  const float* const all = untiled_rows_product<AmxIntegerUnit>(args, 1, kParts, tiled_scratch);
  constexpr int64_t width = kTilesWidth / kParts;   // of a part's sums
  constexpr int64_t columns = kTileBlock / kParts;  // of a part in a block
  for (int64_t row = 0; row < args.m; row += kTileBlock) {
    const int64_t rows = std::min(kTileBlock, args.m - row);
    std::array<float*, 2> to = {args.sums[0] + row * width, nullptr};
    if constexpr (kParts == 2) to[1] = args.sums[1] + row * width;
    if (args.work != nullptr) to = args.work->begin(row, rows);
    for (int64_t block = 0; block < 2; ++block)
      for (int64_t p = 0; p < kParts; ++p) {
        const float* const sums =
            all + (block * panels + row / kTileBlock) * kBlockSums + p * kTileBlock * columns;
        const int64_t column = block * columns;
        const float* const earlier = args.sums[p] + row * width + column;
        w8a8_kernels().finish({reinterpret_cast<const int32_t*>(sums), columns, rows, columns,
                               args.row_scales + row, args.scales + p * width + column,
                               args.accumulate ? earlier : nullptr,
                               to[static_cast<size_t>(p)] + column, width});
      }
    PacedWork(args.work, 1).finish();
  }
}
void amx_i8_tiled_one(const PanelArgs& args) { tiled_product<1>(args); }
void amx_i8_tiled_two(const PanelArgs& args) { tiled_product<2>(args); }

#else

void amx_i8_one(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }
void amx_i8_two(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }
void amx_i8_tiled_one(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }
void amx_i8_tiled_two(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }
void amx_i8_tiles(const TileArgs&) { EPI_ASSERT(false, "x86-64 only"); }

#endif

}  // namespace

const char* decline_w8a8_amx(const PanelUse& use) {
  if (const char* reason = decline_others_than_w8a8(use)) return reason;
  const CpuFeatures features = active_features();
  if (!features.has(CpuFeature::amx_int8) || !features.has(CpuFeature::avx512_vnni))
    return "needs AMX-INT8 and AVX512-VNNI";
  return pack_kernels().width == kTilesWidth ? nullptr : "needs panels of AVX-512";
}

const PanelKernel& w8a8_amx_kernel() {
  static const PanelKernel kernel = {.level = "amx",
                                     .layout = w8a8_quads_layout(kTilesWidth),
                                     .mr = 2 * kTileRows,
                                     .lanes = 16,
                                     .one = amx_i8_one,
                                     .two = amx_i8_two,
                                     .has_tiles = true,
                                     .overlap_rows = kLeastTileRows};
  return kernel;
}

// Its lines round to bf16 (block_lines.h).
const char* decline_w8a8_amx_tiled(const PanelUse& use) {
  if (const char* reason = decline_w8a8_amx(use)) return reason;
  return active_features().has(CpuFeature::avx512_bf16) ? nullptr : "needs AVX512-BF16";
}

const PanelKernel& w8a8_amx_tiled_kernel() {
  static const PanelKernel kernel = [] {
    PanelKernel tiled = w8a8_amx_kernel();
    tiled.layout.has_tiles = true;
    tiled.one = amx_i8_tiled_one;
    tiled.two = amx_i8_tiled_two;
    tiled.tiles = amx_i8_tiles;
    return tiled;
  }();
  return kernel;
}

}  // namespace epilogue::simd
