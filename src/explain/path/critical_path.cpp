// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/critical_path.h"

#include <algorithm>
#include <utility>

#include "epilogue/trace/time.h"
#include "explain/path/path_builder.h"

namespace epilogue::trace {
namespace {

constexpr std::array<std::string_view, kPathKinds> kPathKindNames = {
    "kernel",           "copy",           "host_op",    "launch_call", "sync_call",
    "host_between_ops", "launch_latency", "device_gap", "before"};

// Somebody can make it faster by writing other code.
bool can_be_faster(PathKind kind) {
  return kind == PathKind::kernel || kind == PathKind::copy || kind == PathKind::host_op ||
         kind == PathKind::launch_call || kind == PathKind::host_between_ops;
}

int64_t end_of(const std::vector<int64_t>& times) {
  return *std::max_element(times.begin(), times.end());
}

// Calls run(start_ns, end_ns, group) for each part of the path, by time.
template <class Run>
void for_each_part(const PathGraph& graph, const std::vector<uint32_t>& edges,
                   uint32_t before_group, const CriticalPath& path, Run run) {
  // A wait may end before what it waited for, as far as the clocks are apart: nothing counts twice.
  int64_t at_ns = path.start_ns;
  const auto step_to = [&](int64_t end_ns, uint32_t group) {
    if (end_ns > at_ns) run(std::exchange(at_ns, end_ns), end_ns, group);
  };
  const int64_t first_ns =
      edges.empty() ? path.end_ns : graph.time_ns(graph.edge(edges.front()).from);
  step_to(first_ns, before_group);
  for (const uint32_t id : edges) {
    const PathGraph::Edge e = graph.edge(id);
    step_to(graph.time_ns(e.to), e.group);
  }
}

void add_what_ifs(const PathGraph& graph, CriticalPath& path) {
  std::vector<uint32_t> largest;
  for (uint32_t i = 0; i < graph.groups().size(); ++i)
    if (path.groups[i].path_ns > 0 && can_be_faster(path.groups[i].kind)) largest.push_back(i);
  std::stable_sort(largest.begin(), largest.end(), [&](uint32_t a, uint32_t b) {
    return path.groups[a].path_ns > path.groups[b].path_ns;
  });
  largest.resize(std::min(largest.size(), kWhatIfGroups));
  for (const uint32_t i : largest) {
    path.groups[i].if_half_ns = end_of(graph.solve(i, 0.5)) - path.start_ns;
    path.groups[i].if_none_ns = end_of(graph.solve(i, 0)) - path.start_ns;
  }
}

// The largest first, without those that are not on the path.
void sort_groups(CriticalPath& path) {
  std::vector<uint32_t> order(path.groups.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return path.groups[a].path_ns > path.groups[b].path_ns;
  });
  std::vector<uint32_t> place(order.size());
  std::vector<PathGroup> groups;
  for (uint32_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    if (path.groups[order[i]].count > 0) groups.push_back(std::move(path.groups[order[i]]));
  }
  path.groups = std::move(groups);
  for (PathPiece& piece : path.pieces) piece.group = place[piece.group];
}

}  // namespace

std::string_view path_kind_name(PathKind kind) { return kPathKindNames[static_cast<size_t>(kind)]; }

std::optional<CriticalPath> critical_path(const Trace& trace, const Links& links) {
  if (links.device_work.empty() || is_synchronous_device(trace)) return std::nullopt;
  PathBuilder builder(trace, links);
  const PathGraph graph = builder.build();
  if (graph.moments() == 0) return std::nullopt;

  CriticalPath path;
  path.stream_waits = builder.stream_waits();
  path.inferred_waits = builder.inferred_waits();
  path.start_ns = path.end_ns = graph.time_ns(0);
  for (uint32_t i = 0; i < graph.moments(); ++i) {
    path.start_ns = std::min(path.start_ns, graph.time_ns(i));
    path.end_ns = std::max(path.end_ns, graph.time_ns(i));
  }
  for (const PathGraph::Group& g : graph.groups())
    path.groups.push_back({g.kind, std::string(trace.strings[g.name]), 0, 0, 0, {}, {}});
  const auto before_group = static_cast<uint32_t>(path.groups.size());
  path.groups.push_back({PathKind::before, "", 0, 0, 0, {}, {}});
  graph.for_each_edge([&](const PathGraph::Edge& e) {
    path.groups[e.group].total_ns += std::max<int64_t>(e.weight_ns, 0);
  });

  const std::vector<uint32_t> edges = graph.longest_path();
  size_t pieces = 0;
  uint32_t last = kNone;
  for_each_part(graph, edges, before_group, path,
                [&](int64_t start_ns, int64_t end_ns, uint32_t group) {
                  PathGroup& g = path.groups[group];
                  ++g.count;
                  g.path_ns += end_ns - start_ns;
                  path.kind_ns[static_cast<size_t>(g.kind)] += end_ns - start_ns;
                  if (std::exchange(last, group) != group) ++pieces;
                });
  path.groups[before_group].total_ns = path.groups[before_group].path_ns;
  add_what_ifs(graph, path);
  // Last: of a long trace they are as large as what the above takes for a while.
  path.pieces.reserve(pieces);
  for_each_part(graph, edges, before_group, path,
                [&](int64_t start_ns, int64_t end_ns, uint32_t group) {
                  if (!path.pieces.empty() && path.pieces.back().group == group) {
                    path.pieces.back().end_ns = end_ns;
                  } else {
                    path.pieces.push_back({start_ns, end_ns, group});
                  }
                });
  sort_groups(path);
  return path;
}

}  // namespace epilogue::trace
