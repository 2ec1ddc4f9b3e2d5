// SPDX-License-Identifier: Apache-2.0
// What the kernels of 4-bit weights share: those of few rows widen them in registers, those of many
// have them unpacked.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/panels/kernel_list.h"

namespace epilogue::simd {

// Up to so many rows the weights' way to the core is the limit.
inline constexpr int64_t kFewI4Rows = 8;
// What a step of 32 columns costs in tiles, with what unpacks it beside; and in a kernel of few
// rows, where each four rows widen it again. Cycles.
struct TileCosts {
  int64_t tiles;
  int64_t widen;
  int64_t row;
};
constexpr bool tiles_are_faster(const TileCosts& costs, int64_t rows) {
  constexpr int64_t kRowsAtOnce = 4;
  return rows >= kLeastTileRows &&
         costs.widen * ((rows + kRowsAtOnce - 1) / kRowsAtOnce) + costs.row * rows > costs.tiles;
}
// Sums are ended group by group.
inline constexpr int64_t kAnyK = int64_t{1} << 40;

// Beside rows of 8 bits, for all kernels and any number of rows, 4-bit weights are bytes that have
// one scale for kBytesK of k and a column: a step times its group's scale is rounded once more. The
// groups' own sums would take longer to scale than to make.
//
//   scale  the most that a step of any of the groups reaches / kMostByte
//   ratio  the group's scale / scale, rounded to 1 / kRatioOne
//   byte   (step - zero) * ratio, rounded, half upwards
inline constexpr int64_t kBytesK = 512;
inline constexpr int kMostByte = 127;
inline constexpr int kRatioOne = 1024;
// So that mulhrs makes a byte of ratio and step, this is a step.
inline constexpr int kStepOne = 32;
static_assert(kRatioOne * kStepOne == 1 << 15);
// Weights of less than this become 0: no reciprocal is infinite.
inline constexpr float kLeastReach = 1e-30F;

// How neighbours along k lie side by side in a panel of 8-bit integers: [k / 2][width][2], or
// [k / 4][width][4].
enum class StepOrder : uint8_t { pairs, quads };

// A panel of 4-bit weights as bytes, and what they are multiplied with.
struct UnpackedBytes {
  int8_t* bytes;  // in their order
  float* scales;  // [k / kBytesK, rounded up][width]
};

struct I4Kernels {
  PanelKernel kernel;
  // k (a multiple of the group's size) of a panel as f32, [k][width].
  void (*widen)(const GroupFormat& f, const void* panel, int64_t k, float* out);
  // k from a multiple of kBytesK on.
  void (*unpack)(const GroupFormat& f, const void* panel, int64_t k, StepOrder order,
                 const UnpackedBytes& out);
  // Sums of rows [row, row + rows), [rows][width], to where a kernel's sums go.
  void (*put)(const PanelArgs& args, int64_t row, int64_t rows, const float* sums);
};
// At the level in use.
const I4Kernels& i4_kernels();

}  // namespace epilogue::simd
