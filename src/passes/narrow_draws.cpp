// SPDX-License-Identifier: Apache-2.0
//   bernoulli_ -> f32 mask -> programs    becomes    bernoulli_ -> u8 mask -> programs
// Zeros and ones of a byte each: a quarter of what is written, saved for the backward pass and read
// there. The numbers drawn are the same for every dtype.
#include <algorithm>

#include "graph/fused_node.h"
#include "ops/ops.h"
#include "passes/pipeline.h"
#include "passes/product.h"
#include "passes/program_builder.h"

namespace epilogue::passes {
namespace {

using graph::Graph;
using graph::Node;

// Why a value cannot be bytes; empty where programs alone read it.
std::string reason_against_bytes(const Graph& graph, int v) {
  if (!programs_read_masks(graph))
    return "programs on " + to_string(graph.device) + " read no masks";
  if (std::ranges::count(graph.outputs, v) != 0) return "it is a result";
  for (const Node& node : graph.nodes) {
    if (std::ranges::count(graph::reads(node), v) == 0) continue;
    if (node.fused() == nullptr || !node.fused()->reads_masks(v))
      return label(graph, node) + " reads it, which is no program";
  }
  return "";
}

}  // namespace

void narrow_draws(Graph& graph, PassContext& context) {
  for (Node& node : graph.nodes) {
    if (!graph::is_draw(node)) continue;
    const std::string what = label(graph, node);
    context.declined(what + " into what reads it",
                     "numbers are drawn once, in eager's order, and both passes read the same");
    if (node.call()->op != &kBernoulli_) continue;
    const int v = node.outputs[0];
    const std::string reason = reason_against_bytes(graph, v);
    if (!reason.empty()) {
      context.declined(what + " as bytes", reason);
      continue;
    }
    const double before = graph::value_bytes(graph.value(v));
    graph.value(v).dtype = DType::u8;
    const auto passes = static_cast<double>(1 + graph::Uses(graph).count(v));
    context.did(what + " as bytes", passes * (before - graph::value_bytes(graph.value(v))), 0);
  }
}

}  // namespace epilogue::passes
