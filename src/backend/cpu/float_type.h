// SPDX-License-Identifier: Apache-2.0
// DType to the SIMD kernels' element types.
#pragma once

#include "backend/cpu/simd/convert.h"
#include "epilogue/dtype.h"

namespace epilogue::cpu {

// The dtypes that the SIMD kernels compute in f32.
constexpr bool has_float_type(DType dtype) { return dtype <= DType::f16; }

// Precondition: has_float_type(dtype).
constexpr simd::FloatType float_type(DType dtype) {
  if (dtype == DType::bf16) return simd::FloatType::bf16;
  return dtype == DType::f16 ? simd::FloatType::f16 : simd::FloatType::f32;
}

}  // namespace epilogue::cpu
