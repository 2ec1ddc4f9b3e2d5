// SPDX-License-Identifier: Apache-2.0
//   w -> _to_copy -> ...    becomes    w' -> ...    and w' = _to_copy(w) whenever w was written
// Mixed precision: weights are kept in f32 and cast for the products. A cast of a parameter is as
// good as a parameter, so that products may read it.
#include <set>

#include "core/tensor_impl.h"
#include "ops/ops.h"
#include "passes/pipeline.h"
#include "passes/product.h"

namespace epilogue::passes {
namespace {

using graph::Graph;
using graph::OpCall;
using graph::Value;
using graph::ValueKind;

// What results are views of: it is handed out, and must not be written again.
std::set<int> handed_out(const Graph& graph) {
  const graph::Uses uses(graph);
  std::set<int> values;
  for (int v : graph.outputs) {
    values.insert(v);
    for (int producer = uses.producer(v); producer >= 0; producer = uses.producer(v)) {
      const OpCall* call = graph.nodes[static_cast<size_t>(producer)].call();
      if (call == nullptr || call->inputs[0] == graph::kNoValue ||
          call->op->kind == OpKind::compute)
        break;
      v = call->inputs[0];
      values.insert(v);
    }
  }
  return values;
}

}  // namespace

void keep_casts(Graph& graph, PassContext& context) {
  const std::set<int> results = handed_out(graph);
  std::vector<bool> dead(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const OpCall* call = graph.nodes[i].call();
    if (call == nullptr || call->op != &kToCopy) continue;
    const Value source = graph.value(call->inputs[0]);
    const int cast = graph.nodes[i].outputs[0];
    if (source.kind != ValueKind::parameter || results.contains(cast)) continue;
    Value& value = graph.value(cast);
    value.kind = ValueKind::parameter;
    value.tensor = empty(value.sizes, value.dtype, graph.device);
    // A handle outside the autograd graph.
    const Tensor from = detail::make_view(source.tensor, source.sizes, source.strides);
    graph.casts.push_back(std::make_shared<graph::Cast>(from, value.tensor));
    context.did(label(graph, graph.nodes[i]) + " of a parameter: once for each time it is written",
                graph::value_bytes(source) + graph::value_bytes(value), 1);
    dead[i] = true;
  }
  graph::erase_nodes(graph, dead);
}

}  // namespace epilogue::passes
