// SPDX-License-Identifier: Apache-2.0
//   a -> gelu -> mul(., b) -> neg    becomes    (a, b) -> [gelu, mul, neg]
#include "passes/fuse_nodes.h"
#include "passes/passes.h"
#include "passes/product.h"

namespace epilogue::passes {
namespace {

using graph::Graph;
using graph::Node;
using graph::Uses;

// Joins the node at `index` with one that makes what it reads; true where that was done.
bool try_join(Graph& graph, size_t index, PassContext& context) {
  std::string reason;
  const std::optional<BoundProgram> reader = program_of(graph, graph.nodes[index], reason);
  if (!reader || graph.nodes[index].chain() != nullptr) return false;
  const Uses uses(graph);
  const int result = graph.nodes[index].outputs[0];
  for (const int v : reader->inputs) {
    if (uses.producer(v) < 0) continue;
    const auto maker = static_cast<size_t>(uses.producer(v));
    const std::optional<BoundProgram> made = program_of(graph, graph.nodes[maker], reason);
    if (!made || !(graph.value(v).sizes == graph.value(result).sizes)) continue;
    const std::string what =
        label(graph, graph.nodes[maker]) + " into " + label(graph, graph.nodes[index]);
    if (!only_reader(uses, graph.nodes[index], v)) {
      context.declined(what, "others read its result too");
      continue;
    }
    const Members members = {maker, index};
    if (!may_be_one(graph, members)) continue;
    ProgramBuilder builder;
    builder.append(*made);
    builder.append(*reader);
    const BoundProgram joined = builder.finish(results_needed(graph, members));
    Node fused;
    fused.what = graph::Pointwise{joined.program, joined.inputs};
    fused.outputs = joined.results;
    context.did(what, 2 * graph::value_bytes(graph.value(v)), 1);
    replace_nodes(graph, members, std::move(fused));
    return true;
  }
  return false;
}

}  // namespace

void fuse_pointwise(Graph& graph, PassContext& context) {
  for (size_t i = 0; i < graph.nodes.size();)
    // Where two nodes became one, what followed has moved up.
    i = try_join(graph, i, context) ? i - 1 : i + 1;
}

}  // namespace epilogue::passes
