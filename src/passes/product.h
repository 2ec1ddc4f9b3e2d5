// SPDX-License-Identifier: Apache-2.0
// What passes share: products made of mm and addmm, and how nodes join them.
#pragma once

#include <string>

#include "graph/graph.h"
#include "passes/pipeline.h"
#include "passes/program_builder.h"

namespace epilogue::passes {

// A value's name and what makes it: "aten::gelu %5".
std::string label(const graph::Graph& graph, const graph::Node& node);

// view, _unsafe_view: other sizes, same order of elements.
bool is_reshaping_view(const graph::Node& node);

// Turns the mm or addmm at `index` into a chain of one product, with the views around it. Returns
// why it cannot or should not be; empty where it was done.
std::string form_product(graph::Graph& graph, size_t index, Packed packed);

// Lets the chain at `chain` compute the pointwise node at `other`, which reads a result of its last
// stage or makes an operand of it, there. Returns why not; empty where it was done. Nodes may move.
std::string join_chain(graph::Graph& graph, size_t chain, size_t other);

// Why a stage of a chain on the graph's device cannot give this many results; empty where it can.
// Those of CUDA give one.
std::string reason_against_results(const graph::Graph& graph, size_t results);

// Whether all reads of `value` are by this node.
bool only_reader(const graph::Uses& uses, const graph::Node& node, int value);

// Adds the work of `from`, which `into` now stands for too; its ops come first.
void take_over(graph::Node& into, const graph::Node& from);

}  // namespace epilogue::passes
