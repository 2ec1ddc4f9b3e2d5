// SPDX-License-Identifier: Apache-2.0
#include "explain/path/path_graph.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace epilogue::trace {

void PathGraph::reserve(size_t moments, size_t edges) {
  times_ns_.reserve(moments);
  step_group_.reserve(moments);
  has_edge_.reserve(moments);
  edges_.reserve(edges);
}

uint32_t PathGraph::add_moment(int64_t time_ns) {
  times_ns_.push_back(time_ns);
  step_group_.push_back(kNone);
  has_edge_.push_back(false);
  return static_cast<uint32_t>(times_ns_.size() - 1);
}

uint32_t PathGraph::group_of(PathKind kind, StringId name) {
  const uint64_t key = uint64_t{name} << 8 | static_cast<uint64_t>(kind);
  const auto [place, is_new] = group_ids_.try_emplace(key, static_cast<uint32_t>(groups_.size()));
  if (is_new) groups_.push_back({kind, name});
  return place->second;
}

void PathGraph::add_edge(uint32_t from, uint32_t to, int64_t weight_ns, PathKind kind,
                         StringId name) {
  const int64_t distance_ns = times_ns_[to] - times_ns_[from];
  const uint32_t group = group_of(kind, name);
  // The first edge alone, so that edges to a moment keep their order.
  const bool is_first = !has_edge_[to] && step_group_[to] == kNone;
  if (is_first && to == from + 1 && distance_ns >= 0 && weight_ns >= distance_ns) {
    step_group_[to] = group;
    return;
  }
  has_edge_[to] = true;
  edges_.push_back({std::min(weight_ns, distance_ns), from, to, group, kNone});
}

PathGraph::Edge PathGraph::edge(uint32_t id) const {
  if ((id & kStepBit) == 0) return edges_[id];
  const uint32_t to = id & ~kStepBit;
  return {times_ns_[to] - times_ns_[to - 1], to - 1, to, step_group_[to], kNone};
}

void PathGraph::chain_edges(uint32_t Edge::*moment) {
  first_edge_.assign(moments(), kNone);
  for (size_t k = edges_.size(); k-- > 0;)
    edges_[k].next = std::exchange(first_edge_[edges_[k].*moment], static_cast<uint32_t>(k));
}

// Kahn's. What lies on a cycle (clocks that disagree) is not ordered: it stays where it was.
void PathGraph::order_moments() {
  chain_edges(&Edge::from);
  std::vector<uint32_t> open(moments());
  for (const Edge& e : edges_) ++open[e.to];
  for (uint32_t i = 0; i < moments(); ++i)
    if (step_group_[i] != kNone) ++open[i];
  order_.reserve(moments());
  for (uint32_t i = 0; i < moments(); ++i)
    if (open[i] == 0) order_.push_back(i);
  const auto close = [&](uint32_t to) {
    if (--open[to] == 0) order_.push_back(to);
  };
  size_t at = 0;
  while (at < order_.size()) {  // it grows
    const uint32_t from = order_[at++];
    if (from + 1 < moments() && step_group_[from + 1] != kNone) close(from + 1);
    for (uint32_t k = first_edge_[from]; k != kNone; k = edges_[k].next) close(edges_[k].to);
  }
}

void PathGraph::finish() {
  std::exchange(has_edge_, {});
  order_moments();
  chain_edges(&Edge::to);
  const auto slack = [&](const Edge& e) {
    return times_ns_[e.to] - times_ns_[e.from] - e.weight_ns;
  };
  for (uint32_t i = 0; i < moments(); ++i) {
    uint32_t nearest = first_edge_[i];
    if (nearest == kNone || step_group_[i] != kNone) continue;  // a step explains it
    for (uint32_t k = edges_[nearest].next; k != kNone; k = edges_[k].next)
      if (slack(edges_[k]) < slack(edges_[nearest])) nearest = k;
    edges_[nearest].weight_ns += slack(edges_[nearest]);
  }
}

std::vector<int64_t> PathGraph::solve(uint32_t group, double scale) const {
  std::vector<int64_t> times = times_ns_;
  for (const uint32_t to : order_) {
    if (!has_edge_to(to)) continue;
    int64_t time_ns = INT64_MIN;
    for_each_edge_to(to, [&](uint32_t, const Edge& e) {
      const int64_t weight_ns =
          e.group != group ? e.weight_ns : std::llround(static_cast<double>(e.weight_ns) * scale);
      time_ns = std::max(time_ns, times[e.from] + weight_ns);
    });
    times[to] = time_ns;
  }
  return times;
}

std::vector<uint32_t> PathGraph::longest_path() const {
  std::vector<uint32_t> path;
  if (times_ns_.empty()) return path;
  auto at = static_cast<uint32_t>(std::max_element(times_ns_.begin(), times_ns_.end()) -
                                  times_ns_.begin());
  // No path has more edges than there are moments, unless it is a cycle.
  while (path.size() < moments()) {
    uint32_t deciding = kNone;
    for_each_edge_to(at, [&](uint32_t id, const Edge& e) {
      if (deciding == kNone && times_ns_[e.from] + e.weight_ns == times_ns_[at]) deciding = id;
    });
    if (deciding == kNone) break;
    path.push_back(deciding);
    at = edge(deciding).from;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace epilogue::trace
