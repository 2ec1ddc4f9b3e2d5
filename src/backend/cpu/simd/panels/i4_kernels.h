// SPDX-License-Identifier: Apache-2.0
// What the kernels of 4-bit weights share: those of few rows widen them in registers, those of many
// have them unpacked.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/panels/kernel_list.h"

namespace epilogue::simd {

// Up to so many rows the weights' way to the core is the limit.
inline constexpr int64_t kFewI4Rows = 8;
// Sums are ended group by group.
inline constexpr int64_t kAnyK = int64_t{1} << 40;

struct I4Kernels {
  PanelKernel kernel;
  // k (a multiple of the group's size) of a panel as f32, [k][width].
  void (*widen)(const GroupFormat& f, const void* panel, int64_t k, float* out);
};
// At the level in use.
const I4Kernels& i4_kernels();

}  // namespace epilogue::simd
