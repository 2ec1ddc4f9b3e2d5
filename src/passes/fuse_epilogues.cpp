// SPDX-License-Identifier: Apache-2.0
//   x -> product -> gelu -> mul(., r) -> add(., x)    becomes    x -> product [gelu, mul r, add x]
// A program may keep several results: what others read of the product, or of the ops between, is
// stored on the way. So a backward pass is one kernel that gives several gradients: that of a bias,
// the column sums of what is stored, too.
#include <algorithm>

#include "passes/fuse_nodes.h"
#include "passes/pipeline.h"
#include "passes/product.h"
#include "passes/reducing_programs.h"

namespace epilogue::passes {
namespace {

using fused::Chain;
using graph::Graph;
using graph::Node;
using graph::Uses;

bool is_pointwise(const Graph& graph, const Node& node) {
  std::string reason;
  return node.as<Chain>() == nullptr && program_of(graph, node, reason).has_value();
}

// Pointwise, or a sum of columns.
bool may_read_chain(const Graph& graph, const Node& node) {
  std::string reason;
  if (node.as<Chain>() != nullptr) return false;
  const std::optional<BoundProgram> program = any_program_of(graph, node, reason);
  return program && !has_row_reductions(program->program);
}

// The chain whose result the node at `index` may be computed with: of several the latest, since the
// others are then there already. -1: none.
int chain_read_by(const Graph& graph, const Uses& uses, size_t index) {
  int latest = -1;
  const Node& node = graph.nodes[index];
  for (const int v : graph::reads(node)) {
    const int producer = uses.producer(v);
    if (producer <= latest) continue;
    const Node& maker = graph.nodes[static_cast<size_t>(producer)];
    if (maker.as<Chain>() != nullptr && maker.is_backward == node.is_backward) latest = producer;
  }
  return latest;
}

// A pointwise node that makes an operand of the chain at `index`, of the size of its rows. -1:
// none.
int operand_made_for(const Graph& graph, const Uses& uses, size_t index) {
  const Node& node = graph.nodes[index];
  for (const int v : node.as<Chain>()->stages.back().operands) {
    const int producer = uses.producer(v);
    if (producer < 0 || !(graph.value(v).sizes == graph.value(node.outputs[0]).sizes)) continue;
    const Node& maker = graph.nodes[static_cast<size_t>(producer)];
    if (maker.is_backward == node.is_backward && is_pointwise(graph, maker)) return producer;
  }
  return -1;
}

// Joins the pointwise node at `index` and the chain; true where that was done.
bool try_join_product(Graph& graph, size_t chain, size_t index, PassContext& context) {
  const std::string what =
      label(graph, graph.nodes[index]) + " into the " + label(graph, graph.nodes[chain]);
  const std::vector<int> before = results_needed(graph, {chain});
  const std::vector<int> made = results_needed(graph, {index});
  const std::vector<int> after = results_needed(graph, {chain, index});
  // What is stored no more was written and read; the rest is written, but not read.
  const double passes = static_cast<double>(2 * (before.size() + made.size() - after.size()) +
                                            (before.size() + made.size() == after.size()));
  const double saved = passes * graph::value_bytes(graph.value(graph.nodes[chain].outputs[0]));
  const std::string reason = join_chain(graph, chain, index);
  if (reason.empty()) {
    context.did(what, saved, 1);
  } else {
    context.declined(what, reason);
  }
  return reason.empty();
}

// One round over all nodes; true where something was joined. Notes of what was declined are those
// of the last round, which joins nothing.
bool join_round(Graph& graph, PassContext& context) {
  bool joined = false;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Uses uses(graph);
    const bool is_chain = graph.nodes[i].as<Chain>() != nullptr;
    if (!is_chain && !may_read_chain(graph, graph.nodes[i])) continue;
    const int other = is_chain ? operand_made_for(graph, uses, i) : chain_read_by(graph, uses, i);
    if (other < 0) continue;
    const auto at = static_cast<size_t>(other);
    const bool done = is_chain ? try_join_product(graph, i, at, context)
                               : try_join_product(graph, at, i, context);
    joined = joined || done;
    if (done) --i;  // two nodes are one now: what followed has moved up
  }
  return joined;
}

}  // namespace

void fuse_epilogues(Graph& graph, PassContext& context) {
  do {
    context.forget_declined();
  } while (join_round(graph, context));
}

}  // namespace epilogue::passes
