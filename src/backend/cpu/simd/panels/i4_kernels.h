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

// How neighbours along k lie side by side in a panel of 8-bit integers: [k / 2][width][2], or
// [k / 4][width][4].
enum class StepOrder : uint8_t { pairs, quads };

// A panel of 4-bit weights as integers of 8 bits, and what they are multiplied with.
struct UnpackedSteps {
  int8_t* steps;   // in their order
  float* scales;   // [groups][width]
  int32_t* zeros;  // [groups][width], which steps lie around; null: taken away from them
};

struct I4Kernels {
  PanelKernel kernel;
  // k (a multiple of the group's size) of a panel as f32, [k][width].
  void (*widen)(const GroupFormat& f, const void* panel, int64_t k, float* out);
  void (*unpack)(const GroupFormat& f, const void* panel, int64_t k, StepOrder order,
                 const UnpackedSteps& out);
};
// At the level in use.
const I4Kernels& i4_kernels();

}  // namespace epilogue::simd
