// SPDX-License-Identifier: Apache-2.0
// Operands as kernels of contiguous memory want them.
#pragma once

#include "backend/cpu/strided_copy.h"
#include "epilogue/tensor.h"

namespace epilogue::cpu {

// The tensor, or a contiguous copy of it in `dtype`.
inline Tensor contiguous_as(const Tensor& t, DType dtype) {
  if (t.is_contiguous() && t.dtype() == dtype) return t;
  const Tensor copy = empty(t.sizes(), dtype);
  copy_tensor(copy, t);
  return copy;
}
inline Tensor contiguous_of(const Tensor& t) { return contiguous_as(t, t.dtype()); }

}  // namespace epilogue::cpu
