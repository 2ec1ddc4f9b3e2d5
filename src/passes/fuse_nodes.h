// SPDX-License-Identifier: Apache-2.0
// How passes put one node in the place of several.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace epilogue::passes {

// Nodes by index.
using Members = std::vector<size_t>;

// Whether the members may run as one: somebody reads what they make, all are of one pass (forward
// or backward), and nothing that they make comes back to them by way of others.
bool may_be_one(const graph::Graph& graph, const Members& members);

// The members' results that others read, in the members' order.
std::vector<int> results_needed(const graph::Graph& graph, const Members& members);

// Puts `fused` in the members' place; it stands for their ops from now on. Nodes may move.
void replace_nodes(graph::Graph& graph, Members members, graph::Node fused);

}  // namespace epilogue::passes
