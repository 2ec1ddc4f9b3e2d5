// SPDX-License-Identifier: Apache-2.0
//   w -> t ──────────┐                     w^T
//   x -> view -> mm ─┴─> view    becomes   x -> product
//   x -> t -> t                            x
#include <algorithm>

#include "ops/ops.h"
#include "passes/pipeline.h"
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

// Ops that give the same elements in other sizes or strides, from the same first one on.
bool is_whole_view(const OpCall* call) {
  return call != nullptr && (call->op == &kT || call->op == &kTranspose || call->op == &kView ||
                             call->op == &kUnsafeView);
}

// The value that the view at `index` shows as it is, through the views that it is made of: t(t(x))
// is x. -1: none.
int same_as(const Graph& graph, const graph::Uses& uses, size_t index) {
  const OpCall* call = graph.nodes[index].call();
  const Value& view = graph.value(graph.nodes[index].outputs[0]);
  while (is_whole_view(call)) {
    const int v = call->inputs[0];
    const Value& source = graph.value(v);
    if (source.sizes == view.sizes && source.strides == view.strides) return v;
    const int producer = uses.producer(v);
    call = producer < 0 ? nullptr : graph.nodes[static_cast<size_t>(producer)].call();
  }
  return -1;
}

// Views that undo each other: what reads them reads what they show.
void drop_double_views(Graph& graph, PassContext& context) {
  std::vector<bool> dead(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int shown = same_as(graph, graph::Uses(graph), i);
    if (shown < 0) continue;
    const int view = graph.nodes[i].outputs[0];
    for (Node& node : graph.nodes) graph::replace_reads(node, view, shown);
    // A result must stay a tensor of its own where the caller gave what it shows.
    const bool is_own = graph.value(shown).kind == ValueKind::intermediate;
    if (is_own) std::replace(graph.outputs.begin(), graph.outputs.end(), view, shown);
    dead[i] = is_own;
    if (is_own) context.did(label(graph, graph.nodes[i]) + " is %" + std::to_string(shown), 0, 0);
  }
  graph::erase_nodes(graph, dead);
}

}  // namespace

void fold_views(Graph& graph, PassContext& context) {
  drop_double_views(graph, context);
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
    const std::string reason = form_product(graph, i, context.options().packed);
    if (reason.empty()) {
      context.did(what + (graph.nodes.size() < before ? ", with the views around it" : ""), 0, 0);
    } else {
      context.declined(what, reason);
    }
  }
}

}  // namespace epilogue::passes
