// SPDX-License-Identifier: Apache-2.0
// How views are made: shared by core and the view ops.
#pragma once

#include "epilogue/tensor.h"

namespace epilogue::detail {

// Row-major strides, in elements.
Dims contiguous_strides(const Dims& sizes);
// Dimensions of size 1 do not matter; empty tensors are contiguous.
bool strides_are_contiguous(const Dims& sizes, const Dims& strides);

// A new tensor over base's storage; `offset` in elements from base's first element. No checks.
Tensor make_view(const Tensor& base, const Dims& sizes, const Dims& strides, int64_t offset = 0);

}  // namespace epilogue::detail
