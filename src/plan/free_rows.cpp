// SPDX-License-Identifier: Apache-2.0
#include "plan/free_rows.h"

#include <algorithm>

#include "core/tensor_impl.h"
#include "graph/fused_node.h"

namespace epilogue::plan {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;
using graph::ValueKind;

int64_t columns(const Dims& sizes) { return sizes.rank() == 0 ? 1 : sizes[sizes.rank() - 1]; }

// Two leaves of two captures that are the same memory.
bool same_leaf(const Value& a, const Value& b) {
  const bool numbers = a.kind == ValueKind::constant && b.kind == ValueKind::constant;
  if (a.kind != b.kind || a.dtype != b.dtype || !(a.sizes == b.sizes)) return false;
  if (numbers) return a.tensor.to_vector() == b.tensor.to_vector();
  return a.strides == b.strides && a.tensor.data() == b.tensor.data();
}

bool same_value(const Graph& a, const Graph& b, int va, int vb) {
  if ((va == graph::kNoValue) != (vb == graph::kNoValue)) return false;
  if (va == graph::kNoValue) return true;
  const Value& x = a.value(va);
  const Value& y = b.value(vb);
  if (graph::is_leaf(x) || graph::is_leaf(y)) return same_leaf(x, y);
  // Captures number inputs and results alike.
  return va == vb && x.dtype == y.dtype && columns(x.sizes) == columns(y.sizes);
}

bool same_values(const Graph& a, const Graph& b, const std::vector<int>& va,
                 const std::vector<int>& vb) {
  return std::equal(va.begin(), va.end(), vb.begin(), vb.end(),
                    [&](int x, int y) { return same_value(a, b, x, y); });
}

bool same_node(const Graph& a, const Graph& b, const Node& x, const Node& y) {
  if (!same_values(a, b, graph::reads(x), graph::reads(y)) ||
      !same_values(a, b, x.outputs, y.outputs))
    return false;
  if (graph::is_draw(x) && graph::is_draw(y))
    return x.call()->op == y.call()->op && x.call()->attrs == y.call()->attrs;
  return x.fused() != nullptr && y.fused() != nullptr && x.fused()->is_same_but_rows(*y.fused());
}

}  // namespace

bool rows_may_be_free(const Graph& graph) {
  if (graph.inputs.empty()) return false;
  const Dims& model = graph.value(graph.inputs[0]).sizes;
  if (model.rank() < 2) return false;
  const auto follows = [&](int v) {
    const Value& value = graph.value(v);
    return graph::same_leading(value.sizes, model) &&
           detail::strides_are_contiguous(value.sizes, value.strides);
  };
  if (!std::all_of(graph.inputs.begin(), graph.inputs.end(), follows)) return false;
  for (const Node& node : graph.nodes) {
    if (node.call() != nullptr && !graph::is_draw(node)) return false;
    if (!std::all_of(node.outputs.begin(), node.outputs.end(), follows)) return false;
    if (node.fused() != nullptr && !node.fused()->takes_any_rows(graph, model)) return false;
  }
  return true;
}

bool same_but_rows(const Graph& a, const Graph& b) {
  return rows_may_be_free(b) && same_values(a, b, a.inputs, b.inputs) &&
         same_values(a, b, a.outputs, b.outputs) &&
         std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(),
                    [&](const Node& x, const Node& y) { return same_node(a, b, x, y); });
}

}  // namespace epilogue::plan
