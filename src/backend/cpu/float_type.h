// SPDX-License-Identifier: Apache-2.0
// DType to the SIMD kernels' element types.
#pragma once

#include "backend/cpu/simd/convert.h"
#include "core/kernel_list.h"

namespace epilogue::cpu {

// Precondition: has_float_type(dtype).
constexpr simd::FloatType float_type(DType dtype) {
  if (dtype == DType::bf16) return simd::FloatType::bf16;
  return dtype == DType::f16 ? simd::FloatType::f16 : simd::FloatType::f32;
}

}  // namespace epilogue::cpu
