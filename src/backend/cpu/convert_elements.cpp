// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/convert_elements.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/float_type.h"
#include "backend/cpu/simd/convert.h"
#include "ops/element_cast.h"

namespace epilogue::cpu {
namespace {

// bf16 <-> f16 by way of f32, which holds both exactly: still one rounding.
void convert_16_bit(DType from, const void* in, DType to, void* out, size_t n) {
  constexpr size_t kBlock = 512;
  alignas(64) float block[kBlock];
  const auto* source = static_cast<const uint16_t*>(in);
  auto* target = static_cast<uint16_t*>(out);
  for (size_t i = 0; i < n; i += kBlock) {
    const size_t length = std::min(kBlock, n - i);
    simd::to_f32(float_type(from), source + i, block, length);
    simd::from_f32(float_type(to), block, target + i, length);
  }
}

void convert_by_element(DType from, const void* in, DType to, void* out, size_t n) {
  dispatch(from, [&]<class From>() {
    dispatch(to, [&]<class To>() {
      const auto* source = static_cast<const From*>(in);
      auto* target = static_cast<To*>(out);
      for (size_t i = 0; i < n; ++i) target[i] = cast_element<To>(source[i]);
    });
  });
}

}  // namespace

void convert_elements(DType from, const void* in, DType to, void* out, size_t n) {
  if (from == to) {
    std::memmove(out, in, n * dtype_bytes(from));
  } else if (to == DType::f32 && has_float_type(from)) {
    simd::to_f32(float_type(from), in, static_cast<float*>(out), n);
  } else if (from == DType::f32 && has_float_type(to)) {
    simd::from_f32(float_type(to), static_cast<const float*>(in), out, n);
  } else if (is_low_precision(from) && is_low_precision(to)) {
    convert_16_bit(from, in, to, out, n);
  } else {
    convert_by_element(from, in, to, out, n);
  }
}

}  // namespace epilogue::cpu
