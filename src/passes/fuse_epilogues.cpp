// SPDX-License-Identifier: Apache-2.0
//   x -> product -> gelu -> mul(., r) -> add(., x)    becomes    x -> product [gelu, mul r, add x]
#include "passes/passes.h"
#include "passes/product.h"

namespace epilogue::passes {
namespace {

using graph::Graph;
using graph::Uses;

// The chain whose result the node at `index` may be computed with: of several the latest, since the
// others are then there already. -1: none.
int chain_read_by(const Graph& graph, const Uses& uses, size_t index) {
  int latest = -1;
  for (const int v : graph::reads(graph.nodes[index])) {
    const int producer = uses.producer(v);
    if (producer > latest && graph.nodes[static_cast<size_t>(producer)].chain() != nullptr)
      latest = producer;
  }
  return latest;
}

bool try_join(Graph& graph, size_t index, PassContext& context) {
  const graph::Node& node = graph.nodes[index];
  std::string reason;
  if (node.chain() != nullptr || !program_of(graph, node, reason)) return false;
  const int found = chain_read_by(graph, Uses(graph), index);
  if (found < 0) return false;
  const auto chain = static_cast<size_t>(found);
  const std::string what = label(graph, node) + " into the " + label(graph, graph.nodes[chain]);
  const double saved = 2 * graph::value_bytes(graph.value(graph.nodes[chain].outputs[0]));
  reason = join_chain(graph, chain, index);
  if (!reason.empty()) {
    context.declined(what, reason);
    return false;
  }
  std::vector<bool> dead(graph.nodes.size(), false);
  dead[chain] = true;
  graph::erase_nodes(graph, dead);
  context.did(what, saved, 1);
  return true;
}

}  // namespace

void fuse_epilogues(Graph& graph, PassContext& context) {
  for (size_t i = 0; i < graph.nodes.size();)
    // Joining removes a node before i: what follows has moved to i.
    if (!try_join(graph, i, context)) ++i;
}

}  // namespace epilogue::passes
