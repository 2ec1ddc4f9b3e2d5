// SPDX-License-Identifier: Apache-2.0
#include "explain/path/path_graph.h"

#include <cmath>

namespace epilogue::trace {

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

// Kahn's algorithm. Moments on a cycle (clocks that disagree) are not ordered: they keep their
// times.
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

PathGraph::Ends PathGraph::ends_if_faster(uint32_t group) const {
  std::vector<Ends> times;
  times.reserve(moments());
  for (const int64_t time_ns : times_ns_) times.push_back({time_ns, time_ns});
  for (const uint32_t to : order_) {
    if (!has_edge_to(to)) continue;
    Ends latest = {INT64_MIN, INT64_MIN};
    for_each_edge_to(to, [&](uint32_t, const Edge& e) {
      Ends weight_ns = {e.weight_ns, e.weight_ns};
      if (e.group == group) weight_ns = {std::llround(static_cast<double>(e.weight_ns) * 0.5), 0};
      latest.if_half_ns =
          std::max(latest.if_half_ns, times[e.from].if_half_ns + weight_ns.if_half_ns);
      latest.if_none_ns =
          std::max(latest.if_none_ns, times[e.from].if_none_ns + weight_ns.if_none_ns);
    });
    times[to] = latest;
  }
  Ends end = times.front();
  for (const Ends& time : times) {
    end.if_half_ns = std::max(end.if_half_ns, time.if_half_ns);
    end.if_none_ns = std::max(end.if_none_ns, time.if_none_ns);
  }
  return end;
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
