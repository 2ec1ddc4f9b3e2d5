// SPDX-License-Identifier: Apache-2.0
// A graph as text, and as a drawing for Graphviz.
#pragma once

#include <string>

#include "graph/graph.h"

namespace epilogue::graph {

// One line per leaf that is read and per node:
//   %0 = input bf16[8, 64]
//   %4 = aten::gelu(%3; 1) -> bf16[8, 256]
// Fused nodes may have further lines.
std::string to_text(const Graph& graph);
std::string to_text(const Graph& graph, const Node& node);
// "bf16[8, 64]".
std::string to_text(const Value& value);

// "%4"; "none" for kNoValue. "%4, %5". The shortest text of a number in six digits.
std::string value_name(int value);
std::string value_list(const std::vector<int>& values);
std::string number_text(double x);

// Graphviz: boxes are nodes, ellipses are leaves, edges carry sizes.
std::string to_dot(const Graph& graph);

}  // namespace epilogue::graph
