// SPDX-License-Identifier: Apache-2.0
//   block 1: products, program; block 2: products, program
// becomes
//   block 1: products; block 2: products beside block 1's program; block 2's program
// A tile unit multiplies by itself. Elsewhere products and programs share the vector units, and
// there is nothing to decide.
#include "passes/chain_stages.h"
#include "passes/pipeline.h"
#include "passes/product.h"

namespace epilogue::passes {

void overlap_epilogues(graph::Graph& graph, PassContext& context) {
  if (!graph.capabilities.overlaps_bf16_programs) return;
  for (graph::Node& node : graph.nodes) {
    const auto* const chain = node.as<fused::Chain>();
    if (chain == nullptr || graph.value(chain->x).dtype != DType::bf16) continue;
    auto overlapped = std::make_shared<fused::Chain>(*chain);
    overlapped->overlaps = true;
    node.what = std::move(overlapped);
    context.did("programs of the " + label(graph, node) + " beside the next block's products", 0,
                0);
  }
}

}  // namespace epilogue::passes
