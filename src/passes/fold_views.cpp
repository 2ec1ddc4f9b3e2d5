// SPDX-License-Identifier: Apache-2.0
//   w -> t ──────────┐                     w^T
//   x -> view -> mm ─┴─> view    becomes   x -> product
#include "ops/ops.h"
#include "passes/passes.h"
#include "passes/product.h"

namespace epilogue::passes {
namespace {

using graph::Graph;
using graph::Node;
using graph::OpCall;
using graph::Value;
using graph::ValueKind;

// A view of a parameter is a parameter: it follows every write to it.
bool fold_parameter_view(Graph& graph, size_t index) {
  const Node& node = graph.nodes[index];
  const OpCall* call = node.call();
  if (call == nullptr || call->op->kind != OpKind::view) return false;
  const Value& source = graph.value(call->inputs[0]);
  if (source.kind != ValueKind::parameter) return false;
  const Outputs view = call->op->compose(Call{*call->op, {&source.tensor, 1}, call->attrs, {}});
  const int out = node.outputs[0];
  graph.value(out) = {ValueKind::parameter, view[0].sizes(), view[0].strides(), view[0].dtype(),
                      view[0]};
  return true;
}

}  // namespace

void fold_views(Graph& graph, PassContext& context) {
  std::vector<bool> dead(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!fold_parameter_view(graph, i)) continue;
    context.did(label(graph, graph.nodes[i]) + " of a parameter", 0, 0);
    dead[i] = true;
  }
  graph::erase_nodes(graph, dead);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const OpCall* call = graph.nodes[i].call();
    if (call == nullptr || call->op != &kMm) continue;
    const std::string what = label(graph, graph.nodes[i]) + " as a product with packed weights";
    const size_t before = graph.nodes.size();
    const std::string reason = form_product(graph, i);
    if (reason.empty()) {
      context.did(what + (graph.nodes.size() < before ? ", with the views around it" : ""), 0, 0);
    } else {
      context.declined(what, reason);
    }
  }
}

}  // namespace epilogue::passes
