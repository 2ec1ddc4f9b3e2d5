// SPDX-License-Identifier: Apache-2.0
// A weight of 4 bits that somebody else rounded: what GPTQ and AWQ checkpoints hold.
#pragma once

#include <cstdint>

#include "epilogue/tensor.h"

#pragma GCC visibility push(default)

namespace epilogue {

// w[i][j] = scales[i][g] * (step[i][j] - zeros[i][g]) with g = j / group: [n, k] as nn.Linear holds
// it. All tensors are contiguous and on the CPU. Copies share them.
struct Int4Weight {
  int64_t n = 0;
  int64_t k = 0;
  int64_t group = 0;  // inputs that share a scale, a multiple of 32; the last one may be short
  Tensor steps;       // u8 [n, (k + 1) / 2]: the lower j in the lower half of a byte
  Tensor scales;      // f16 or bf16 [n, groups], as many as k needs
  Tensor zeros;       // u8 [n, groups], 0 to 16; undefined: 8
  // i64 [k]: column j of the above is input order[j] (GPTQ's desc_act); undefined: input j.
  Tensor order;

  // The weight itself [n, k], its columns as the inputs lie; every value is the product of two
  // numbers that f32 holds, rounded once. f32, bf16 or f16. Throws Error where the tensors do not
  // fit each other.
  Tensor dequantised(DType dtype = DType::f32) const;
};

// Throws Error "[what] ..." where the tensors do not fit each other.
void require_int4_weight(const Int4Weight& weight, const char* what);

}  // namespace epilogue

#pragma GCC visibility pop
