// SPDX-License-Identifier: Apache-2.0
#include "analysis/time/path_graph.h"

#include <algorithm>
#include <cmath>

namespace epilogue::trace {

uint32_t PathGraph::add_moment(int64_t time_ns) {
  times_ns_.push_back(time_ns);
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
  edges_.push_back({from, to, std::min(weight_ns, distance_ns), group_of(kind, name)});
}

// Kahn's. What lies on a cycle (clocks that disagree) is not ordered: it stays where it was.
void PathGraph::order_moments() {
  std::vector<uint32_t> open(moments());
  std::vector<uint32_t> first_out(moments() + 1);
  for (const Edge& e : edges_) {
    ++open[e.to];
    ++first_out[e.from + 1];
  }
  for (size_t i = 1; i < first_out.size(); ++i) first_out[i] += first_out[i - 1];
  std::vector<uint32_t> out(edges_.size());
  std::vector<uint32_t> next = first_out;
  for (const Edge& e : edges_) out[next[e.from]++] = e.to;
  for (uint32_t i = 0; i < moments(); ++i)
    if (open[i] == 0) order_.push_back(i);
  for (size_t at = 0; at < order_.size(); ++at)
    for (uint32_t k = first_out[order_[at]]; k < first_out[order_[at] + 1]; ++k)
      if (--open[out[k]] == 0) order_.push_back(out[k]);
}

void PathGraph::finish() {
  std::stable_sort(edges_.begin(), edges_.end(),
                   [](const Edge& a, const Edge& b) { return a.to < b.to; });
  first_edge_.assign(moments() + 1, 0);
  for (const Edge& e : edges_) ++first_edge_[e.to + 1];
  for (size_t i = 1; i < first_edge_.size(); ++i) first_edge_[i] += first_edge_[i - 1];
  order_moments();
  const auto slack = [&](const Edge& e) {
    return times_ns_[e.to] - times_ns_[e.from] - e.weight_ns;
  };
  for (uint32_t i = 0; i < moments(); ++i) {
    const auto first = edges_.begin() + first_edge_[i];
    const auto last = edges_.begin() + first_edge_[i + 1];
    if (first == last) continue;
    const auto nearest = std::min_element(
        first, last, [&](const Edge& a, const Edge& b) { return slack(a) < slack(b); });
    nearest->weight_ns += slack(*nearest);
  }
}

std::vector<int64_t> PathGraph::solve(uint32_t group, double scale) const {
  std::vector<int64_t> times = times_ns_;
  for (const uint32_t to : order_) {
    if (first_edge_[to] == first_edge_[to + 1]) continue;
    int64_t time_ns = INT64_MIN;
    for (uint32_t k = first_edge_[to]; k < first_edge_[to + 1]; ++k) {
      const Edge& e = edges_[k];
      const int64_t weight_ns =
          e.group != group ? e.weight_ns : std::llround(static_cast<double>(e.weight_ns) * scale);
      time_ns = std::max(time_ns, times[e.from] + weight_ns);
    }
    times[to] = time_ns;
  }
  return times;
}

std::vector<PathGraph::Edge> PathGraph::longest_path() const {
  std::vector<Edge> path;
  if (times_ns_.empty()) return path;
  auto at = static_cast<uint32_t>(std::max_element(times_ns_.begin(), times_ns_.end()) -
                                  times_ns_.begin());
  // No path has more edges than there are moments, unless it is a cycle.
  while (path.size() < moments()) {
    const auto first = edges_.begin() + first_edge_[at];
    const auto last = edges_.begin() + first_edge_[at + 1];
    const auto deciding = std::find_if(first, last, [&](const Edge& e) {
      return times_ns_[e.from] + e.weight_ns == times_ns_[at];
    });
    if (deciding == last) break;
    path.push_back(*deciding);
    at = deciding->from;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace epilogue::trace
