// SPDX-License-Identifier: Apache-2.0
//   x -> product(w1) -> product(w2)    becomes    x -> product(w2 w1)
// Only where asked for: the new weight does not follow later writes to w1 and w2.
#include "epilogue/ops.h"
#include "passes/pipeline.h"
#include "passes/product.h"

namespace epilogue::passes {
namespace {

using fused::Chain;
using graph::Graph;
using graph::Node;
using graph::Uses;
using graph::Value;

bool is_bare_product(const Node& node) {
  const Chain* chain = node.as<Chain>();
  return chain != nullptr && chain->stages.size() == 1 && chain->stages[0].weights.size() == 1 &&
         chain->stages[0].epilogue.steps.empty() && chain->norm.kind == Norm::none;
}

// w2 w1, summed and kept in f32 until it is rounded once.
Tensor product_of(const Tensor& w2, const Tensor& w1) {
  return to(mm(to(w2, DType::f32), to(w1, DType::f32)), w1.dtype());
}

bool try_collapse(Graph& graph, size_t index, PassContext& context) {
  Node& second = graph.nodes[index];
  if (second.as<Chain>() == nullptr || second.as<Chain>()->stages[0].weights.size() != 1)
    return false;
  const Uses uses(graph);
  const int hidden = second.as<Chain>()->x;
  const int producer = uses.producer(hidden);
  if (producer < 0 || !is_bare_product(graph.nodes[static_cast<size_t>(producer)])) return false;
  const Node& first = graph.nodes[static_cast<size_t>(producer)];
  const std::string what = label(graph, first) + " and " + label(graph, second);
  const int w1 = first.as<Chain>()->stages[0].weights[0];
  const int w2 = second.as<Chain>()->stages[0].weights[0];
  const int64_t k = graph.value(w1).sizes[1];
  const int64_t h = graph.value(w1).sizes[0];
  const int64_t n = graph.value(w2).sizes[0];
  std::string reason;
  if (!context.options().collapse_linears) reason = "not asked for (collapse_linears)";
  if (reason.empty() && !uses.is_single(hidden)) reason = "others read what lies between too";
  if (reason.empty() && k * n >= h * (k + n)) reason = "one product would not be cheaper";
  if (!reason.empty()) {
    context.declined(what, reason);
    return false;
  }
  const Tensor weight = product_of(graph.value(w2).tensor, graph.value(w1).tensor);
  const int w = graph.add_value(
      {graph::ValueKind::parameter, weight.sizes(), weight.strides(), weight.dtype(), weight});
  Chain chain = *second.as<Chain>();
  chain.x = first.as<Chain>()->x;
  chain.stages[0].weights = {w};
  context.did(what, 2 * graph::value_bytes(graph.value(hidden)), 1);
  take_over(second, first);
  second.what = std::make_shared<Chain>(std::move(chain));
  std::vector<bool> dead(graph.nodes.size(), false);
  dead[static_cast<size_t>(producer)] = true;
  graph::erase_nodes(graph, dead);
  return true;
}

}  // namespace

void collapse_linears(Graph& graph, PassContext& context) {
  for (size_t i = 0; i < graph.nodes.size();)
    if (!try_collapse(graph, i, context)) ++i;
}

}  // namespace epilogue::passes
