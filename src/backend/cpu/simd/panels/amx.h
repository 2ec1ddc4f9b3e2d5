// SPDX-License-Identifier: Apache-2.0
// The panel kernels of AMX. To be called where cpu_has(CpuFeature::amx_bf16) only.
#pragma once

#include "backend/cpu/simd/panels/packed_weights.h"

namespace epilogue::simd {

// Fewer rows go to the dot-product kernel, which streams the same panels faster: memory is the
// limit, and a tile of few rows leaves the tile unit idle.
inline constexpr int64_t kLeastTileRows = 5;

// They know PanelArgs::work from kLeastTileRows rows on.
void amx_one(const PanelArgs& args);
void amx_two(const PanelArgs& args);

}  // namespace epilogue::simd
