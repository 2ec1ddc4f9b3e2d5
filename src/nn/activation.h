// SPDX-License-Identifier: Apache-2.0
// The function behind an Activation.
#pragma once

#include "epilogue/nn.h"
#include "pointwise/pointwise_fn.h"

namespace epilogue::nn {

// The row of the table of functions.
PointwiseFn function_of(Activation activation);
// The pointwise function: of a gated activation, what its gate branch goes through.
Tensor activate(const Tensor& x, Activation activation);

}  // namespace epilogue::nn
