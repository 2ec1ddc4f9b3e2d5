// SPDX-License-Identifier: Apache-2.0
// Weights as 4-bit integers with a scale (and a zero) per column and group of k.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/panels/layout.h"

namespace epilogue::simd {

// What one group becomes. Matrices are [size][width] and [width], dense.
struct GroupSteps {
  uint8_t* steps;    // 0 to kMostSteps
  uint16_t* scales;  // in the format's type
  uint8_t* zeros;    // kMiddleStep where the format has none
};

// values [size][width] to the nearest steps. The scale of a column is the one among some between
// half of its range and all of it that leaves the least sum of squared errors, as it is stored: a
// clipped outlier can cost less than coarse steps for all others. Without zeros the largest
// magnitude is step 0, so the scale may be negative. A column that is not finite throughout gets
// the scale NaN.
void round_group(const float* values, int64_t width, const GroupFormat& f, const GroupSteps& out);

}  // namespace epilogue::simd
