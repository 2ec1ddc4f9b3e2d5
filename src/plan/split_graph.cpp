// SPDX-License-Identifier: Apache-2.0
#include "plan/split_graph.h"

namespace epilogue::plan {

using graph::Graph;
using graph::Node;

SplitGraph split(const Graph& graph, size_t forward_results) {
  std::vector<bool> is_made(graph.values.size(), false);  // by the forward pass
  std::vector<bool> is_read(graph.values.size(), false);  // by the backward pass
  SplitGraph result;
  result.forward.values = graph.values;
  result.backward.values = graph.values;
  result.forward.device = graph.device;
  result.forward.capabilities = graph.capabilities;
  result.backward.device = graph.device;
  result.backward.capabilities = graph.capabilities;
  result.forward.draws = graph.draws;
  result.forward.casts = graph.casts;
  result.backward.casts = graph.casts;
  for (const Node& node : graph.nodes) {
    (node.is_backward ? result.backward : result.forward).nodes.push_back(node);
    if (node.is_backward)
      for (const int v : graph::reads(node)) is_read[static_cast<size_t>(v)] = true;
    if (!node.is_backward)
      for (const int v : node.outputs) is_made[static_cast<size_t>(v)] = true;
  }
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const int v = graph.outputs[i];
    (i < forward_results ? result.forward : result.backward).outputs.push_back(v);
    if (i >= forward_results) is_read[static_cast<size_t>(v)] = true;
  }
  const int seed = graph.inputs.back();
  result.forward.inputs.assign(graph.inputs.begin(), graph.inputs.end() - 1);
  result.backward.inputs = {seed};
  for (size_t i = 0; i + 1 < graph.inputs.size(); ++i) {
    if (!is_read[static_cast<size_t>(graph.inputs[i])]) continue;
    result.inputs.push_back(static_cast<int>(i));
    result.backward.inputs.push_back(graph.inputs[i]);
  }
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (!is_made[v] || !is_read[v]) continue;
    result.forward.outputs.push_back(static_cast<int>(v));
    result.backward.inputs.push_back(static_cast<int>(v));
    result.backward.values[v].kind = graph::ValueKind::input;
  }
  return result;
}

}  // namespace epilogue::plan
