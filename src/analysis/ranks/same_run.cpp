// SPDX-License-Identifier: Apache-2.0
// Whether traces are the ranks of one run.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "analysis/ranks/rank_info.h"
#include "epilogue/trace/ranks.h"

namespace epilogue::trace {
namespace {

std::set<std::string_view> op_names(const Trace& trace) {
  std::set<std::string_view> names;
  for (const Event& e : trace.events)
    if (e.category == Category::cpu_op) names.insert(trace.name(e));
  return names;
}

struct Window {
  int64_t first_ns = std::numeric_limits<int64_t>::max();
  int64_t last_ns = std::numeric_limits<int64_t>::min();
};

// When the trace's events ran, on the clock that all traces share.
Window window_of(const Trace& trace) {
  Window w;
  for (const Event& e : trace.events) {
    w.first_ns = std::min(w.first_ns, trace.base_time_ns + e.ts_ns);
    w.last_ns = std::max(w.last_ns, trace.base_time_ns + e.end_ns());
  }
  return w;
}

// Of traces that do not say which rank they are.
std::string why_different_programs(std::span<const RankTrace> traces) {
  const Trace& first = traces.front().trace;
  const std::set<std::string_view> ops = op_names(first);
  const Window at_first = window_of(first);
  for (const RankTrace& other : traces.subspan(1)) {
    const auto both = [&](const char* what) {
      return fmt::format("{} and {} {}", first.import.path, other.trace.import.path, what);
    };
    if (op_names(other.trace) != ops) return both("have different ops");
    const Window at = window_of(other.trace);
    if (at.first_ns > at_first.last_ns || at_first.first_ns > at.last_ns)
      return both("ran at different times");
  }
  return "";
}

}  // namespace

std::string why_not_ranks(std::span<const RankTrace> traces) {
  std::map<int64_t, const Trace*> by_rank;
  std::optional<int64_t> world_size;
  for (const RankTrace& t : traces) {
    const RankInfo info = rank_info(t.trace);
    if (!info.rank) continue;
    const auto [same, is_new] = by_rank.emplace(*info.rank, &t.trace);
    if (!is_new)
      return fmt::format("{} and {} are both of rank {}", same->second->import.path,
                         t.trace.import.path, *info.rank);
    if (info.world_size && *info.rank >= *info.world_size)
      return fmt::format("{} says rank {} of {} ranks", t.trace.import.path, *info.rank,
                         *info.world_size);
    if (world_size && info.world_size && *world_size != *info.world_size)
      return fmt::format("{} says that the run has {} ranks, another trace says {}",
                         t.trace.import.path, *info.world_size, *world_size);
    if (info.world_size) world_size = info.world_size;
  }
  if (traces.size() < 2 || by_rank.size() == traces.size()) return "";
  if (by_rank.empty()) return why_different_programs(traces);
  const auto unnamed = std::find_if(traces.begin(), traces.end(),
                                    [](const RankTrace& t) { return !rank_info(t.trace).rank; });
  return unnamed->trace.import.path + " does not say which rank it is of, but others do";
}

}  // namespace epilogue::trace
