// SPDX-License-Identifier: Apache-2.0
// Products of 4-bit weights by AMX's tiles: the loops of exact weights (tile_product.h), over
// columns that are unpacked beside them.
#include "backend/cpu/simd/panels/amx_unit.h"
#include "backend/cpu/simd/panels/tile_product.h"
#include "base/assert.h"

namespace epilogue::simd {

void i4_amx_tiles(const TileArgs& args);
void w4a8_amx_tiles(const TileArgs& args);

#if defined(__x86_64__)

void i4_amx_tiles(const TileArgs& args) { TileLoops<AmxUnit, true>(args).run(); }
void w4a8_amx_tiles(const TileArgs& args) { TileLoops<AmxIntegerUnit, true>(args).run(); }

#else

void i4_amx_tiles(const TileArgs&) { EPI_ASSERT(false, "x86-64 only"); }
void w4a8_amx_tiles(const TileArgs&) { EPI_ASSERT(false, "x86-64 only"); }

#endif

}  // namespace epilogue::simd
