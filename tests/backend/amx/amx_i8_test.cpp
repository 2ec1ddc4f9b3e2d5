// SPDX-License-Identifier: Apache-2.0
// The tile instructions of 8-bit integers as the kernel has them, on any x86-64 machine: where the
// processor has no tiles, the emulator carries them out, whatever vectors there are.
#include "backend/amx/amx_emulator.h"
#include "backend/cpu/simd/panels/amx_i8_tiles.h"
#include "backend/cpu/simd/panels/amx_unit.h"
#include "backend/simd/panels/integer_products.h"
#include "base/cpu_features.h"
#include "support/test.h"

namespace epilogue::simd {
const PanelKernel& w8a8_amx_tiled_kernel();
}
namespace epilogue::simd::amx_i8_test {

TEST(AmxI8, SumsAreExact) {
  detected_features();  // installs the emulator, or asks for the tiles
  const int64_t before = testing::emulated_amx_products();
  for (const int64_t m : kIntegerRows)
    for (const int64_t k : kIntegerDepths)
      for (const int parts : {1, 2})
        expect_integer_product(
            w8a8_quads_layout(kTilesWidth), m, k, parts,
            [](const PanelArgs& args, int p) { IntegerTileProduct<AmxUnit>(args, p).run(); });
  if (testing::amx_is_emulated()) {
    EXPECT_GT(testing::emulated_amx_products(), before);
  }
}

// Fewer rows are left to the dot products of AVX512-VNNI.
TEST(AmxI8, SumsOfPanelsInTilesAreExact) {
  detected_features();
  const PanelKernel& kernel = w8a8_amx_tiled_kernel();
  for (const int64_t m : kIntegerRows)
    for (const int64_t k : kIntegerDepths)
      for (const int parts : {1, 2})
        if (m >= kLeastTileRows)
          expect_integer_product(kernel.layout, m, k, parts, [&](const PanelArgs& args, int p) {
            (p == 2 ? kernel.two : kernel.one)(args);
          });
}

}  // namespace epilogue::simd::amx_i8_test
