// SPDX-License-Identifier: Apache-2.0
#include "graph/graph.h"

#include <algorithm>
#include <iterator>

#include "base/assert.h"
#include "core/tensor_impl.h"
#include "epilogue/ops.h"
#include "graph/fused_node.h"

namespace epilogue::graph {

void Cast::refresh() {
  const int64_t version = from.version();
  if (made_of_.load(std::memory_order_acquire) == version) return;
  const std::lock_guard<std::mutex> lock(writing_);
  if (made_of_.load(std::memory_order_relaxed) == version) return;
  copy_(to, from);
  made_of_.store(version, std::memory_order_release);
}

bool is_draw(const Node& node) { return node.call() != nullptr && node.call()->op->draws; }

std::vector<int> reads(const Node& node) {
  if (const FusedNode* const fused = node.fused()) return fused->reads();
  std::vector<int> list;
  std::ranges::copy_if(node.call()->inputs, std::back_inserter(list),
                       [](int v) { return v != kNoValue; });
  return list;
}

Uses::Uses(const Graph& graph) : producers_(graph.values.size(), -1), counts_(graph.values.size()) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const int v : graph.nodes[i].outputs)
      producers_[static_cast<size_t>(v)] = static_cast<int>(i);
    for (const int v : reads(graph.nodes[i])) ++counts_[static_cast<size_t>(v)];
  }
  for (const int v : graph.outputs) ++counts_[static_cast<size_t>(v)];
}

void replace_reads(Node& node, int from, int to) {
  if (const FusedNode* const fused = node.fused()) {
    node.what = fused->reading(from, to);
  } else {
    std::ranges::replace(std::get<OpCall>(node.what).inputs, from, to);
  }
}

void mark_backward(Graph& graph, size_t results) {
  std::vector<bool> needed(graph.values.size(), false);
  for (size_t i = 0; i < results; ++i) needed[static_cast<size_t>(graph.outputs[i])] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    Node& node = graph.nodes[i];
    node.is_backward =
        !is_draw(node) && std::none_of(node.outputs.begin(), node.outputs.end(),
                                       [&](int v) { return needed[static_cast<size_t>(v)]; });
    if (!node.is_backward)
      for (const int v : reads(node)) needed[static_cast<size_t>(v)] = true;
  }
}

void sort_nodes(Graph& graph) {
  const Uses uses(graph);
  std::vector<Node> sorted;
  std::vector<bool> done(graph.nodes.size(), false);
  const auto is_ready = [&](const Node& node) {
    const std::vector<int> list = reads(node);
    return std::all_of(list.begin(), list.end(), [&](int v) {
      return uses.producer(v) < 0 || done[static_cast<size_t>(uses.producer(v))];
    });
  };
  size_t first = 0;  // all before it are done
  while (sorted.size() < graph.nodes.size()) {
    while (done[first]) ++first;
    size_t i = first;
    while (i < done.size() && (done[i] || !is_ready(graph.nodes[i]))) ++i;
    EPI_ASSERT(i < done.size(), "the graph has a cycle");
    done[i] = true;
    sorted.push_back(std::move(graph.nodes[i]));
  }
  graph.nodes = std::move(sorted);
}

void erase_nodes(Graph& graph, const std::vector<bool>& dead) {
  std::vector<Node> kept;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (!dead[i]) kept.push_back(std::move(graph.nodes[i]));
  graph.nodes = std::move(kept);
}

Tensor shape_only(const Value& value) {
  // Any address that is not null: shape rules compute with it and never read.
  static std::byte nothing;
  return Tensor::from_blob(&nothing, value.sizes, value.dtype, {}, value.strides);
}

double value_bytes(const Value& value) {
  return static_cast<double>(element_count(value.sizes)) *
         static_cast<double>(dtype_bytes(value.dtype));
}

int64_t row_count(const Dims& sizes) {
  int64_t rows = 1;
  for (int d = 0; d + 1 < sizes.rank(); ++d) rows *= sizes[d];
  return rows;
}

bool same_leading(const Dims& a, const Dims& b) {
  if (a.rank() != b.rank()) return false;
  for (int d = 0; d + 1 < a.rank(); ++d)
    if (a[d] != b[d]) return false;
  return true;
}

namespace {

// One stride for all dimensions but the last, where there is one: each must continue the next.
std::optional<int64_t> collapsed_row_stride(const Dims& sizes, const Dims& strides) {
  std::optional<int64_t> row_stride;
  int64_t next = 0;  // the stride that the dimension outside the last one seen must have
  for (int d = sizes.rank() - 2; d >= 0; --d) {
    if (sizes[d] == 1) continue;
    if (row_stride && strides[d] != next) return std::nullopt;
    if (!row_stride) row_stride = strides[d];
    next = strides[d] * sizes[d];
  }
  // At most one row: as if more of them followed without a gap.
  return row_stride ? *row_stride : sizes[sizes.rank() - 1];
}

// Rows that repeat or lie apart: dimensions of one stride are one group, the innermost first.
std::optional<RowLayout> repeated_layout(const Value& value, const Dims& sizes,
                                         int64_t col_stride) {
  struct Group {
    int64_t count;
    int64_t stride;
  };
  std::vector<Group> groups;
  const int shift = sizes.rank() - value.sizes.rank();
  for (int d = sizes.rank() - 2; d >= 0; --d) {
    const int64_t size = d >= shift ? value.sizes[d - shift] : 1;
    if (size != sizes[d] && size != 1) return std::nullopt;
    if (sizes[d] == 1) continue;
    const int64_t stride = size == 1 ? 0 : value.strides[d - shift];
    if (!groups.empty() && stride == groups.back().stride * groups.back().count) {
      groups.back().count *= sizes[d];
    } else {
      groups.push_back({sizes[d], stride});
    }
  }
  if (groups.empty()) return RowLayout{0, col_stride};
  if (groups.size() > kRowLevels + 1) return std::nullopt;
  RowLayout layout{groups[0].stride, col_stride};
  int64_t rows = groups[0].count;
  for (size_t i = 1; i < groups.size(); ++i) {
    layout.levels[i - 1] = {rows, groups[i].stride};
    rows *= groups[i].count;
  }
  return layout;
}

}  // namespace

std::optional<RowLayout> row_layout(const Value& value, const Dims& sizes, bool repeats) {
  if (sizes.rank() == 0 || value.sizes.rank() > sizes.rank()) return std::nullopt;
  if (value.sizes.rank() == 0) return RowLayout{0, 0};
  const int last = value.sizes.rank() - 1;
  const int64_t columns = sizes[sizes.rank() - 1];
  if (value.sizes[last] != columns && value.sizes[last] != 1) return std::nullopt;
  const int64_t col_stride = value.sizes[last] == 1 && columns != 1 ? 0 : value.strides[last];
  const bool one_row = row_count(value.sizes) == 1;
  if (one_row && (is_leaf(value) || !same_leading(value.sizes, sizes)))
    return RowLayout{0, col_stride};
  if (same_leading(value.sizes, sizes))
    if (const std::optional<int64_t> stride = collapsed_row_stride(value.sizes, value.strides))
      return RowLayout{*stride, col_stride};
  return repeats ? repeated_layout(value, sizes, col_stride) : std::nullopt;
}

}  // namespace epilogue::graph
