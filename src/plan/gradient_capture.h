// SPDX-License-Identifier: Apache-2.0
// Capture of a function together with its backward pass.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "graph/capture.h"
#include "plan/captured.h"

namespace epilogue::plan {

// The loss, and what else the forward pass is to give.
using StepFunction = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

// The results of a step and the gradients of the first, the loss, of all leaves. Throws Error as
// graph::capture() and backward() do, and where an input or a tensor that the function holds is
// part of an autograd graph already.
Captured capture_step(const StepFunction& function, std::span<const Tensor> inputs);

// A function whose backward pass runs later; without one where its results require no gradient.
// Inputs may be part of an autograd graph. Throws Error where a gradient is wanted of more than one
// result.
Captured capture_function(const graph::Function& function, std::span<const Tensor> inputs);

}  // namespace epilogue::plan
