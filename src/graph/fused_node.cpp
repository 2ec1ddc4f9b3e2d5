// SPDX-License-Identifier: Apache-2.0
#include "graph/fused_node.h"

#include <algorithm>

#include "graph/print.h"

namespace epilogue::graph {

void NodeRules::require(bool condition, const std::string& expected) const {
  if (!condition) throw Error("[graph] expected " + expected + ", got " + to_text(graph, node));
}

void NodeRules::require_result(size_t i, const Dims& sizes, DType dtype) const {
  require(i < node.outputs.size(), "as many results as the op has");
  const Value& value = graph.value(node.outputs[i]);
  require(value.sizes == sizes && value.dtype == dtype,
          std::string(dtype_name(dtype)) + to_string(sizes) + " by the op's rule");
}

Dims FusedNode::elements(const Graph& graph, const Node& node) const {
  return graph.value(node.outputs[0]).sizes;
}

double FusedNode::moved_bytes(const Graph& graph, const Node& node, double rows_scale) const {
  double bytes = 0;
  const auto add = [&](int v) {
    const Value& value = graph.value(v);
    bytes += value_bytes(value) * (value.tensor.defined() ? 1 : rows_scale);
  };
  std::vector<int> list = reads();
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  for (const int v : list) add(v);
  for (const int v : node.outputs) add(v);
  return bytes;
}

OperandView view_of(const Graph& graph, int value, const Dims& sizes) {
  const Value& v = graph.value(value);
  const RowLayout layout = *row_layout(v, sizes, graph.capabilities.programs_repeat_rows);
  return {value, {nullptr, v.dtype, layout.row_stride, layout.col_stride, layout.levels}};
}

bool serves_any_rows(const Graph& graph, int value) {
  return !is_leaf(graph.value(value)) || row_count(graph.value(value).sizes) == 1;
}

}  // namespace epilogue::graph
