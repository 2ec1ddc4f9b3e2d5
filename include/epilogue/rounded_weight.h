// SPDX-License-Identifier: Apache-2.0
// Weights of few bits that are rounded already: of 4 (int4_weight.h) or of 8. Kernels take them as
// they are; nobody needs the values that they were made of.
#pragma once

#include <cstdint>
#include <variant>

#include "epilogue/int4_weight.h"
#include "epilogue/tensor.h"

#pragma GCC visibility push(default)

namespace epilogue {

// w[i][j] = scales[i] * steps[i][j], steps as 8-bit integers of two's complement: [n, k] as
// nn.Linear holds it. Both tensors are contiguous and on the CPU. Copies share them.
struct Int8Weight {
  int64_t n = 0;
  int64_t k = 0;
  Tensor steps;   // u8 [n, k], the bytes of integers from -128 to 127
  Tensor scales;  // f32 [n]

  // As Int4Weight's.
  Tensor dequantised(DType dtype = DType::f32) const;
};

using RoundedWeight = std::variant<Int4Weight, Int8Weight>;

// Throws Error "[what] ..." where the tensors do not fit each other.
void require_int8_weight(const Int8Weight& weight, const char* what);

}  // namespace epilogue

#pragma GCC visibility pop
