// SPDX-License-Identifier: Apache-2.0
// Where 8-bit weights serve.
#pragma once

#include "backend/cpu/simd/panels/kernel_list.h"

namespace epilogue::simd {

// `most`: rows up to which 8-bit weights are faster than what they stand for.
inline const char* decline_i8_weights(const PanelUse& use, int64_t most) {
  if (use.precision != Precision::i8) return "needs weights that may be rounded to 8 bits";
  return use.rows <= most ? nullptr : "needs fewer rows";
}

}  // namespace epilogue::simd
