// SPDX-License-Identifier: Apache-2.0
// A captured call, and where its gradients belong.
#pragma once

#include <optional>
#include <vector>

#include "graph/graph.h"

namespace epilogue::plan {

// What a gradient belongs to.
struct Leaf {
  int input = -1;    // the input of that index, or
  Tensor parameter;  // a tensor that the function holds

  const Tensor& of(std::span<const Tensor> inputs) const {
    return input >= 0 ? inputs[static_cast<size_t>(input)] : parameter;
  }
};

struct Captured {
  graph::Graph graph;
  // Of a call with its backward pass: the results of the forward pass come first, then one gradient
  // per leaf. 0: there is no backward pass.
  size_t forward_results = 0;
  std::vector<Leaf> leaves = {};
  // The backward pass runs later, and gets the gradient of the result: the graph's last input.
  bool runs_backward_later = false;
  // Whether ops were recorded for autograd; empty where that does not matter.
  std::optional<bool> grad_mode = {};
};

}  // namespace epilogue::plan
