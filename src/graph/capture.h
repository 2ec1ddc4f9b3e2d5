// SPDX-License-Identifier: Apache-2.0
// Capture: runs a function once, without its kernels, and notes the ops.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "graph/graph.h"

namespace epilogue::graph {

using Function = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

// The ops that `function` runs on these inputs, of which sizes, strides and dtypes count. Tensors
// that it meets and that are no results of its ops are parameters, numbers are constants.
// In-place ops on what the function made are nodes that make new values; draws are such nodes.
// Throws Error where the function writes elsewhere in place, draws random numbers without an op, or
// reads elements: what then happens cannot be known from one run.
Graph capture(const Function& function, std::span<const Tensor> inputs);

}  // namespace epilogue::graph
