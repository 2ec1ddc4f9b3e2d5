// SPDX-License-Identifier: Apache-2.0
// The graph of which the critical path is the longest path.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "epilogue/trace/critical_path.h"
#include "epilogue/trace/event.h"

namespace epilogue::trace {

// A run as a graph: moments of host and device, and how long after one the other comes at least.
class PathGraph {
 public:
  struct Edge {
    int64_t weight_ns = 0;
    uint32_t from = 0;
    uint32_t to = 0;
    uint32_t group = 0;
    uint32_t next = kNone;  // edge to the same moment, once finished
  };
  struct Group {
    PathKind kind = PathKind::kernel;
    StringId name = 0;
  };

  // Growing by doubling would be most of what a long trace's graph takes.
  void reserve(size_t moments, size_t edges) {
    times_ns_.reserve(moments);
    step_group_.reserve(moments);
    has_edge_.reserve(moments);
    edges_.reserve(edges);
  }
  uint32_t add_moment(int64_t time_ns) {
    times_ns_.push_back(time_ns);
    step_group_.push_back(kNone);
    has_edge_.push_back(false);
    return static_cast<uint32_t>(times_ns_.size() - 1);
  }
  // `to` comes at least `weight_ns` after `from`. The recorded times must obey it: a weight above
  // the distance of the moments is cut to it.
  void add_edge(uint32_t from, uint32_t to, int64_t weight_ns, PathKind kind, StringId name = 0);
  // Once, after all edges: orders the moments, and raises of each one the edge that is nearest to
  // explain it until it does. From then on the edges give what was seen.
  void finish();

  // When the last moment comes if the edges of one group take half of their time, or none. Moments
  // without an edge to them stay where they were. Precondition: there are moments.
  struct Ends {
    int64_t if_half_ns = 0;
    int64_t if_none_ns = 0;
  };
  Ends ends_if_faster(uint32_t group) const;
  // The edges that decide when the last moment comes, by time: for edge().
  std::vector<uint32_t> longest_path() const;

  int64_t time_ns(uint32_t moment) const { return times_ns_[moment]; }
  size_t moments() const { return times_ns_.size(); }
  Edge edge(uint32_t id) const {
    if ((id & kStepBit) == 0) return edges_[id];
    const uint32_t to = id & ~kStepBit;
    return {times_ns_[to] - times_ns_[to - 1], to - 1, to, step_group_[to], kNone};
  }
  // Calls visit(edge) for all, in no order.
  template <class Visit>
  void for_each_edge(Visit&& visit) const {
    for (const Edge& e : edges_) visit(e);
    for (uint32_t to = 0; to < moments(); ++to)
      if (step_group_[to] != kNone) visit(edge(kStepBit | to));
  }
  const std::vector<Group>& groups() const { return groups_; }

 private:
  // Marks the id of a step; the other bits are the moment that it leads to.
  static constexpr uint32_t kStepBit = uint32_t{1} << 31;

  // Calls visit(id, edge) for the edges to a moment, in the order in which they were added.
  template <class Visit>
  void for_each_edge_to(uint32_t to, Visit&& visit) const {
    if (step_group_[to] != kNone) visit(kStepBit | to, edge(kStepBit | to));
    for (uint32_t k = first_edge_[to]; k != kNone; k = edges_[k].next) visit(k, edges_[k]);
  }
  bool has_edge_to(uint32_t to) const {
    return step_group_[to] != kNone || first_edge_[to] != kNone;
  }

  uint32_t group_of(PathKind kind, StringId name) {
    std::vector<uint32_t>& ids = group_ids_[static_cast<size_t>(kind)];
    if (name >= ids.size()) ids.resize(name + 1, kNone);
    if (ids[name] == kNone) {
      ids[name] = static_cast<uint32_t>(groups_.size());
      groups_.push_back({kind, name});
    }
    return ids[name];
  }
  // Makes lists of the edges that have one moment there: from first_edge_, by Edge::next.
  void chain_edges(uint32_t Edge::*moment) {
    first_edge_.assign(moments(), kNone);
    for (size_t k = edges_.size(); k-- > 0;)
      edges_[k].next = std::exchange(first_edge_[edges_[k].*moment], static_cast<uint32_t>(k));
  }
  void order_moments();

  std::vector<int64_t> times_ns_;
  // Most edges are steps: from the moment before, by the whole distance. Only their group is
  // kept, by the moment that they lead to; kNone: there is none.
  std::vector<uint32_t> step_group_;
  std::vector<bool> has_edge_;  // by moment, until finish(): an edge that is no step leads to it
  std::vector<Edge> edges_;     // the others
  std::vector<uint32_t> first_edge_;  // by moment: an edge to it, or kNone
  std::vector<uint32_t> order_;       // moments, each after those that it depends on
  std::vector<Group> groups_;
  std::array<std::vector<uint32_t>, kPathKinds> group_ids_;  // by kind and name; kNone
};

}  // namespace epilogue::trace
