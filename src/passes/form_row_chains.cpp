// SPDX-License-Identifier: Apache-2.0
//   x -> rms_norm -> product [f] -> product [g]    becomes    x -> chain(norm, product [f], product
//   [g])
// Every op maps rows to rows, so a block of rows runs through all of them while it is in the cache.
#include <algorithm>

#include "ops/ops.h"
#include "passes/chain_stages.h"
#include "passes/pipeline.h"
#include "passes/product.h"
#include "passes/reducing_programs.h"

namespace epilogue::passes {
namespace {

using fused::Chain;
using fused::ChainNorm;
using graph::Graph;
using graph::Node;
using graph::OpCall;
using graph::Uses;
using graph::Value;
using graph::ValueKind;

bool is_norm(const Node& node) {
  const OpCall* call = node.call();
  return call != nullptr && (call->op == &kFusedRmsNorm || call->op == &kNativeLayerNorm);
}

std::string reason_against_norm(const Graph& graph, const Uses& uses, const Node& node,
                                const Node& chain_node) {
  const OpCall& call = *node.call();
  const Chain& chain = *chain_node.as<Chain>();
  const Value& x = graph.value(call.inputs[0]);
  if (chain.norm.kind != Norm::none) return "the chain has a norm already";
  if (std::get<Dims>(call.attrs[0]).rank() != 1) return "it normalises more than one dimension";
  if (!only_reader(uses, chain_node, node.outputs[0])) return "others read its result too";
  const std::vector<int> list = graph::reads(chain_node);
  if (std::count(list.begin(), list.end(), node.outputs[0]) != 1)
    return "the chain reads its result twice";
  for (size_t o = 1; o < node.outputs.size(); ++o)
    if (uses.count(node.outputs[o]) != 0) return "its statistics are read";
  for (size_t i = 1; i < call.inputs.size(); ++i)
    if (call.inputs[i] != graph::kNoValue &&
        graph.value(call.inputs[i]).kind != ValueKind::parameter)
      return "its weight is computed, not a parameter";
  const int last = x.sizes.rank() - 1;
  if (!graph::row_layout(x, x.sizes) || (x.sizes[last] != 1 && x.strides[last] != 1))
    return "the rows are not contiguous";
  return "";
}

bool join_norm(Graph& graph, size_t norm, size_t index, PassContext& context) {
  const Node& node = graph.nodes[norm];
  Node& chain_node = graph.nodes[index];
  const std::string what = label(graph, node) + " into the " + label(graph, chain_node);
  const std::string reason = reason_against_norm(graph, Uses(graph), node, chain_node);
  if (!reason.empty()) {
    context.declined(what, reason);
    return false;
  }
  const OpCall& call = *node.call();
  Chain chain = *chain_node.as<Chain>();
  const bool is_layer = call.op == &kNativeLayerNorm;
  chain.norm = ChainNorm{is_layer ? Norm::layer : Norm::rms, norm_eps(graph, call), call.inputs[1],
                         is_layer ? call.inputs[2] : graph::kNoValue};
  chain.x = call.inputs[0];
  context.did(what, 2 * graph::value_bytes(graph.value(node.outputs[0])), 1);
  take_over(chain_node, node);
  chain_node.what = std::make_shared<Chain>(std::move(chain));
  return true;
}

bool join_chains(Graph& graph, size_t first, size_t second, PassContext& context) {
  const Node& reader = graph.nodes[second];
  const Chain& chain = *reader.as<Chain>();
  const std::string what =
      label(graph, graph.nodes[first]) + " and " + label(graph, reader) + " as one chain";
  const Extension extension = {first, {second}, {chain.x}, chain.stages, reader.outputs[0]};
  std::string reason;
  if (chain.norm.kind != Norm::none) reason = "a norm stands between them";
  if (reason.empty()) reason = reason_against(graph, extension);
  if (!reason.empty()) {
    context.declined(what, reason);
    return false;
  }
  const bool is_stored = !only_reader(Uses(graph), reader, chain.x);
  context.did(what, (is_stored ? 1 : 2) * graph::value_bytes(graph.value(chain.x)), 1);
  extend_chain(graph, extension);
  return true;
}

// Joins the chain at `index` with what makes its rows; true where that was done.
bool try_join(Graph& graph, size_t index, PassContext& context) {
  const Chain* chain = graph.nodes[index].as<Chain>();
  if (chain == nullptr) return false;
  const int producer = Uses(graph).producer(chain->x);
  if (producer < 0) return false;
  const auto maker = static_cast<size_t>(producer);
  if (graph.nodes[maker].as<Chain>() != nullptr) return join_chains(graph, maker, index, context);
  if (!is_norm(graph.nodes[maker]) || !join_norm(graph, maker, index, context)) return false;
  std::vector<bool> dead(graph.nodes.size(), false);
  dead[maker] = true;
  graph::erase_nodes(graph, dead);
  return true;
}

}  // namespace

void form_row_chains(Graph& graph, PassContext& context) {
  for (size_t i = 0; i < graph.nodes.size();)
    // Where two nodes became one, what followed has moved up.
    i = try_join(graph, i, context) ? i - 1 : i + 1;
}

}  // namespace epilogue::passes
