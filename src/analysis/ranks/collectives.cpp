// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/ranks.h"

#include <algorithm>
#include <map>
#include <set>

#include "analysis/device_busy.h"
#include "analysis/ranks/collective_calls.h"
#include "analysis/ranks/rank_info.h"
#include "analysis/time/work_kind.h"
#include "epilogue/trace/time.h"

namespace epilogue::trace {
namespace {

using CallsByName = std::map<std::string, std::vector<CollectiveCall>>;

// When the kernels that are no collectives ran.
IntervalSet other_kernels(const Trace& trace) {
  WorkKinds kinds(trace);
  std::vector<Interval> list;
  // Of a selection also those beside what it launched and what ran into it.
  for_each_event_around(trace, [&](const Event& e) {
    if (e.category == Category::kernel && kinds.of(e) != WorkKind::communication)
      list.push_back({e.ts_ns, e.end_ns()});
  });
  return united(std::move(list));
}

IntervalSet union_of(const Trace& trace, const std::vector<CollectiveCall>& calls) {
  std::vector<Interval> list;
  for (const CollectiveCall& call : calls) {
    const Event& e = trace.events[call.event];
    list.push_back({e.ts_ns, e.end_ns()});
  }
  return united(std::move(list));
}

CollectiveStats stats_of(const Trace& trace, const std::string& name,
                         const std::vector<CollectiveCall>& calls, const IntervalSet& others) {
  CollectiveStats stats;
  stats.name = name;
  stats.bytes = 0;
  std::vector<int64_t> times_ns;
  for (const CollectiveCall& call : calls) {
    times_ns.push_back(trace.events[call.event].dur_ns);
    stats.bytes =
        stats.bytes && call.bytes ? std::optional(*stats.bytes + *call.bytes) : std::nullopt;
  }
  stats.time = *distribution(std::move(times_ns));
  const IntervalSet all = union_of(trace, calls);
  stats.overlap_ns = total_ns(intersected(all, others));
  stats.exposed_ns = total_ns(all) - stats.overlap_ns;
  return stats;
}

RankCollectives rank_collectives(const RankTrace& rank, int64_t position,
                                 const std::vector<CollectiveCall>& calls,
                                 const CallsByName& by_name) {
  RankCollectives result;
  result.rank = rank_info(rank.trace).rank.value_or(position);
  result.span_ns = timeline(rank.trace, rank.links).span_ns();
  const IntervalSet others = other_kernels(rank.trace);
  const IntervalSet all = union_of(rank.trace, calls);
  result.communication_ns = total_ns(all);
  result.overlap_ns = total_ns(intersected(all, others));
  for (const auto& [name, list] : by_name)
    result.kinds.push_back(stats_of(rank.trace, name, list, others));
  std::stable_sort(result.kinds.begin(), result.kinds.end(),
                   [](const CollectiveStats& a, const CollectiveStats& b) {
                     return a.time.total_ns > b.time.total_ns;
                   });
  return result;
}

// Positions of the ranks whose traces have all their collectives.
std::vector<size_t> whole_ranks(std::span<const RankTrace> ranks) {
  std::vector<size_t> whole;
  for (size_t r = 0; r < ranks.size(); ++r)
    if (!ranks[r].trace.import.is_truncated) whole.push_back(r);
  return whole;
}

// Empty where the ranks at the positions `whole` do not agree on how many there are.
std::optional<CollectiveWaits> waits_of(std::span<const RankTrace> ranks,
                                        const std::vector<size_t>& whole, const std::string& name,
                                        const std::vector<CallsByName>& calls) {
  const auto count_of = [&](size_t r) {
    const auto found = calls[r].find(name);
    return found == calls[r].end() ? 0 : found->second.size();
  };
  const size_t count = count_of(whole.front());
  for (const size_t r : whole)
    if (count_of(r) != count) return std::nullopt;
  CollectiveWaits waits;
  waits.name = name;
  waits.count = static_cast<int64_t>(count);
  waits.wait_ns.resize(ranks.size());
  for (const size_t r : whole) waits.wait_ns[r] = 0;
  for (size_t n = 0; n < count; ++n) {
    const auto dur_ns = [&](size_t r) {
      return ranks[r].trace.events[calls[r].at(name)[n].event].dur_ns;
    };
    int64_t shortest_ns = dur_ns(whole.front());
    for (const size_t r : whole) shortest_ns = std::min(shortest_ns, dur_ns(r));
    waits.transfer_ns += shortest_ns;
    for (const size_t r : whole) *waits.wait_ns[r] += dur_ns(r) - shortest_ns;
  }
  return waits;
}

void match_ranks(std::span<const RankTrace> ranks, const std::vector<CallsByName>& calls,
                 Collectives& result) {
  const std::vector<size_t> whole = whole_ranks(ranks);
  if (whole.size() < 2) return;
  std::set<std::string> names;
  for (const size_t r : whole)
    for (const auto& [name, list] : calls[r]) names.insert(name);
  for (const std::string& name : names) {
    if (std::optional<CollectiveWaits> waits = waits_of(ranks, whole, name, calls))
      result.waits.push_back(std::move(*waits));
    else
      result.unmatched.push_back(name);
  }
}

}  // namespace

Collectives collectives(std::span<const RankTrace> ranks) {
  Collectives result;
  std::vector<CallsByName> calls_by_name;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const std::vector<CollectiveCall> calls = collective_calls(ranks[r].trace, ranks[r].links);
    CallsByName& by_name = calls_by_name.emplace_back();
    for (const CollectiveCall& call : calls) by_name[call.name].push_back(call);
    result.ranks.push_back(rank_collectives(ranks[r], static_cast<int64_t>(r), calls, by_name));
  }
  match_ranks(ranks, calls_by_name, result);
  return result;
}

}  // namespace epilogue::trace
