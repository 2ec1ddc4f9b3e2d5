// SPDX-License-Identifier: Apache-2.0
// Capture of a function together with its backward pass.
#pragma once

#include <functional>
#include <span>

#include "graph/capture.h"
#include "plan/captured.h"

namespace epilogue::plan {

using LossFunction = std::function<Tensor(std::span<const Tensor>)>;

// A loss and the gradients of all leaves. Throws Error as graph::capture() and backward() do, and
// where an input or a tensor that the function holds is part of an autograd graph already.
Captured capture_step(const LossFunction& loss, std::span<const Tensor> inputs);

// A function whose backward pass runs later; without one where its results require no gradient.
// Inputs may be part of an autograd graph. Throws Error where a gradient is wanted of more than one
// result.
Captured capture_function(const graph::Function& function, std::span<const Tensor> inputs);

}  // namespace epilogue::plan
