// SPDX-License-Identifier: Apache-2.0
// The panel kernels of AMX. To be called where active_isa() has the level only.
#pragma once

#include "backend/cpu/simd/packed_gemm.h"

namespace epilogue::simd {

void amx_one(const PanelArgs& args);
void amx_two(const PanelArgs& args);

}  // namespace epilogue::simd
