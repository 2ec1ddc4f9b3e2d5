// SPDX-License-Identifier: Apache-2.0
// Rows prepared for a product: normalised where asked for, in the type that its kernel reads.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/convert.h"
#include "core/row_chain.h"

namespace epilogue::cpu {

struct SourceRows {
  const void* data;
  simd::FloatType type;
  int64_t stride;  // k is contiguous
};
struct TargetRows {
  void* data;
  simd::FloatType type;
  int64_t stride;  // at least k; what lies between k and an even k is set to zero
};

// y = norm(x) as aten::rms_norm and aten::layer_norm define it, over all k; sums in f32.
void normalise_rows(const RowChainSpec::Norm& norm, const SourceRows& x, int64_t m, int64_t k,
                    const TargetRows& y);

}  // namespace epilogue::cpu
