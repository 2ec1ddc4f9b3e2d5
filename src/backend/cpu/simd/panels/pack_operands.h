// SPDX-License-Identifier: Apache-2.0
// The operands of one call as a layout's kernels read them.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/panels/layout.h"
#include "backend/cpu/simd/panels/pack.h"

namespace epilogue::simd {

// m rows of A, zeros from k to k_end, `stride` elements apart. Not for integer layouts.
void pack_rows(const PanelLayout& layout, const PackSource& source, int64_t m, int64_t k,
               int64_t k_end, void* out, int64_t stride);

// n <= width columns of B as a panel, zeros beyond n and from k to k_end. Not for layouts that have
// scales.
void pack_panel(const PanelLayout& layout, const PackSource& source, int64_t n, int64_t k,
                int64_t k_end, void* out);

}  // namespace epilogue::simd
