// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "passes/pipeline.h"
#include "passes/product.h"

namespace epilogue::passes {

void drop_dead(graph::Graph& graph, PassContext& context) {
  std::vector<bool> read(graph.values.size(), false);
  for (const int v : graph.outputs) read[static_cast<size_t>(v)] = true;
  std::vector<bool> dead(graph.nodes.size(), false);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const graph::Node& node = graph.nodes[i];
    // A draw moves the generator on, whoever reads it.
    const bool is_used =
        graph::is_draw(node) || std::any_of(node.outputs.begin(), node.outputs.end(),
                                            [&](int v) { return read[static_cast<size_t>(v)]; });
    dead[i] = !is_used;
    if (is_used)
      for (const int v : graph::reads(node)) read[static_cast<size_t>(v)] = true;
    if (!is_used) context.did(label(graph, node), 0, node.replaces.empty() ? 0 : 1);
  }
  graph::erase_nodes(graph, dead);
}

}  // namespace epilogue::passes
