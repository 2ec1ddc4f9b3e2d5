// SPDX-License-Identifier: Apache-2.0
// Parameters may be written between calls, so that only what depends on numbers alone is constant.
#include <algorithm>

#include "ops/ops.h"
#include "ops/run_op.h"
#include "passes/pipeline.h"
#include "passes/product.h"

namespace epilogue::passes {

void fold_constants(graph::Graph& graph, PassContext& context) {
  std::vector<bool> dead(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const graph::Node& node = graph.nodes[i];
    const graph::OpCall* call = node.call();
    if (call == nullptr || call->op->kind != OpKind::compute) continue;
    const bool all_constant = std::all_of(call->inputs.begin(), call->inputs.end(), [&](int v) {
      return v != graph::kNoValue && graph.value(v).kind == graph::ValueKind::constant;
    });
    if (!all_constant) continue;
    std::vector<Tensor> in;
    in.reserve(call->inputs.size());
    for (const int v : call->inputs) in.push_back(graph.value(v).tensor);
    const Outputs out = run_op(*call->op, in, call->attrs);
    for (size_t o = 0; o < node.outputs.size(); ++o)
      graph.value(node.outputs[o]) = {graph::ValueKind::constant, out[o].sizes(), out[o].strides(),
                                      out[o].dtype(), out[o]};
    context.did(label(graph, node) + " of numbers", 0, 1);
    dead[i] = true;
  }
  graph::erase_nodes(graph, dead);
}

}  // namespace epilogue::passes
