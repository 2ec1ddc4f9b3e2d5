// SPDX-License-Identifier: Apache-2.0
// Rounds a weight as kernels with fewer bits pack it.
#pragma once

#include "epilogue/fusion_choices.h"
#include "epilogue/rounded_weight.h"

#pragma GCC visibility push(default)

namespace epilogue {

// weight [n, k], f32, bf16 or f16 with any strides, on the CPU, as fused kernels with these bits
// round it: bit for bit what they pack. `activations` does not count. Throws Error on
// WeightBits::same and on any other tensor.
RoundedWeight round_weight(const Tensor& weight, const Quantisation& bits);

}  // namespace epilogue

#pragma GCC visibility pop
