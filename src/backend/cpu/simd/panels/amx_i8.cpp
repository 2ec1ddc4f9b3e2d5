// SPDX-License-Identifier: Apache-2.0
// Products of 8-bit integers by AMX's tiles, twice those of bf16 in the same time.
#include "backend/cpu/simd/panels/amx_i8_tiles.h"
#include "backend/cpu/simd/panels/amx_unit.h"
#include "backend/cpu/simd/panels/pack.h"
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

#else

void amx_i8_one(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }
void amx_i8_two(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }

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

}  // namespace epilogue::simd
