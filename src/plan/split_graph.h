// SPDX-License-Identifier: Apache-2.0
// A graph with its backward pass as two graphs, of which the second runs later.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace epilogue::plan {

struct SplitGraph {
  graph::Graph forward;     // results: its own, then what is saved
  graph::Graph backward;    // inputs: the gradient of the result, `inputs`, what is saved
  std::vector<int> inputs;  // those of the call that the backward pass reads, by index
};

// The gradient of the one result is the graph's last input.
SplitGraph split(const graph::Graph& graph, size_t forward_results);

}  // namespace epilogue::plan
