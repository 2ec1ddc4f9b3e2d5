// SPDX-License-Identifier: Apache-2.0
#include "passes/fuse_nodes.h"

#include <algorithm>
#include <ranges>

#include "passes/product.h"

namespace epilogue::passes {

using graph::Graph;
using graph::Node;

namespace {

bool holds(const Members& members, size_t i) {
  return std::find(members.begin(), members.end(), i) != members.end();
}

}  // namespace

bool may_be_one(const Graph& graph, const Members& members) {
  if (results_needed(graph, members).empty()) return false;
  for (const size_t i : members)
    if (graph.nodes[i].is_backward != graph.nodes[members[0]].is_backward) return false;
  const auto [first, last] = std::minmax_element(members.begin(), members.end());
  // Values that depend on a member by way of a node that is none.
  std::vector<bool> comes_from_members(graph.values.size(), false);
  std::vector<bool> made_by_member(graph.values.size(), false);
  for (size_t i = *first; i <= *last; ++i) {
    const Node& node = graph.nodes[i];
    const bool is_member = holds(members, i);
    bool depends = false;
    for (const int v : graph::reads(node)) {
      const auto at = static_cast<size_t>(v);
      if (is_member && comes_from_members[at]) return false;
      depends = depends || comes_from_members[at] || made_by_member[at];
    }
    for (const int v : node.outputs) {
      made_by_member[static_cast<size_t>(v)] = is_member;
      comes_from_members[static_cast<size_t>(v)] = !is_member && depends;
    }
  }
  return true;
}

std::vector<int> results_needed(const Graph& graph, const Members& members) {
  std::vector<bool> is_read(graph.values.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (!holds(members, i))
      for (const int v : graph::reads(graph.nodes[i])) is_read[static_cast<size_t>(v)] = true;
  for (const int v : graph.outputs) is_read[static_cast<size_t>(v)] = true;
  std::vector<int> needed;
  for (const size_t i : members)
    for (const int v : graph.nodes[i].outputs)
      if (is_read[static_cast<size_t>(v)]) needed.push_back(v);
  return needed;
}

void replace_nodes(Graph& graph, Members members, Node fused) {
  std::sort(members.begin(), members.end());
  fused.is_backward = graph.nodes[members[0]].is_backward;
  std::vector<bool> dead(graph.nodes.size(), false);
  for (const size_t i : std::views::reverse(members)) {
    take_over(fused, graph.nodes[i]);
    dead[i] = true;
  }
  graph.nodes[members.back()] = std::move(fused);
  dead[members.back()] = false;
  graph::erase_nodes(graph, dead);
  graph::sort_nodes(graph);
}

}  // namespace epilogue::passes
