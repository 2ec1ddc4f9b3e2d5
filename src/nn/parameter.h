// SPDX-License-Identifier: Apache-2.0
// Giving a parameter other data while it stays the same tensor for everyone who holds it.
#pragma once

#include "epilogue/tensor.h"

namespace epilogue::nn {

// `parameter` then shares `value`'s storage, sizes and dtype, and keeps requires_grad. Its gradient
// is not touched. Must not happen between a forward that used it and its backward.
void set_parameter_data(const Tensor& parameter, const Tensor& value);

}  // namespace epilogue::nn
