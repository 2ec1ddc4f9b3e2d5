// SPDX-License-Identifier: Apache-2.0
//   x -> view -> addmm(b, ., w) -> view    becomes    x -> product [+ b]
#include "ops/ops.h"
#include "passes/pipeline.h"
#include "passes/product.h"

namespace epilogue::passes {

void fuse_bias(graph::Graph& graph, PassContext& context) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const graph::OpCall* call = graph.nodes[i].call();
    if (call == nullptr || call->op != &kAddmm) continue;
    const std::string what = label(graph, graph.nodes[i]) + " as a product that adds its bias";
    const std::string reason = form_product(graph, i, context.options().packed);
    if (reason.empty()) {
      context.did(what, 0, 0);
    } else {
      context.declined(what, reason);
    }
  }
}

}  // namespace epilogue::passes
