// SPDX-License-Identifier: Apache-2.0
// Products of tensors that a caller holds, checked.
#pragma once

#include "backend/cpu/simd/gemm/gemm.h"
#include "epilogue/tensor.h"

namespace epilogue::cpu {

// out = a b, + `added` where it is defined: as product_into() says, which throws what this throws.
simd::GemmCall product_call(const Tensor& a, const Tensor& b, const Tensor& added,
                            const Tensor& out);

}  // namespace epilogue::cpu
