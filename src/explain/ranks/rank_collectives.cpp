// SPDX-License-Identifier: Apache-2.0
#include "explain/ranks/rank_collectives.h"

#include <algorithm>

#include "epilogue/trace/time.h"
#include "explain/index/device_busy.h"
#include "explain/ranks/collective_calls.h"
#include "explain/ranks/collective_rates.h"
#include "explain/ranks/rank_info.h"
#include "explain/timeline/work_kind.h"
#include "trace/step_name.h"

namespace epilogue::trace {
namespace {

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
  CollectiveRateSum rates;
  for (const CollectiveCall& call : calls) {
    times_ns.push_back(trace.events[call.event].dur_ns);
    rates.add(call.message_bytes,
              call.group_ranks ? bus_factor(name, *call.group_ranks) : std::nullopt,
              times_ns.back());
    stats.bytes =
        stats.bytes && call.bytes ? std::optional(*stats.bytes + *call.bytes) : std::nullopt;
  }
  stats.rates = rates.rates();
  stats.time = *distribution(std::move(times_ns));
  const IntervalSet all = union_of(trace, calls);
  stats.overlap_ns = total_ns(intersected(all, others));
  stats.exposed_ns = total_ns(all) - stats.overlap_ns;
  return stats;
}

CollectiveRun run_of(const RankTrace& rank, const CollectiveCall& call, const Coverage& others) {
  const Event& e = rank.trace.events[call.event];
  CollectiveRun run;
  run.dur_ns = e.dur_ns;
  run.message_bytes = call.message_bytes.value_or(-1);
  run.exposed_ns = e.dur_ns - others.within_ns({e.ts_ns, e.end_ns()});
  if (const uint32_t step = rank.links.step[call.event]; step != kNone)
    run.step = step_number(rank.trace.name(rank.trace.events[rank.links.steps[step]])).value_or(-1);
  return run;
}

void add_steps(const RankTrace& rank, RankDigest& digest) {
  std::vector<std::vector<Interval>> work(rank.links.steps.size());
  for (const uint32_t i : rank.links.device_work) {
    const Event& e = rank.trace.events[i];
    if (rank.links.step[i] != kNone) work[rank.links.step[i]].push_back({e.ts_ns, e.end_ns()});
  }
  for (size_t s = 0; s < work.size(); ++s) {
    const Event& e = rank.trace.events[rank.links.steps[s]];
    if (const std::optional<int64_t> number = step_number(rank.trace.name(e)))
      digest.step_ns[*number] = std::max(e.dur_ns, total_ns(united(std::move(work[s]))));
  }
}

}  // namespace

void add_collectives(const RankTrace& rank, RankDigest& digest) {
  const std::vector<CollectiveCall> calls = collective_calls(rank.trace, rank.links);
  const IntervalSet other_moments = other_kernels(rank.trace);
  const Coverage others(other_moments);
  std::map<std::string, std::vector<CollectiveCall>> by_name;
  for (const CollectiveCall& call : calls) {
    by_name[call.name].push_back(call);
    CollectiveRuns& runs = digest.runs[{call.name, call.group_name, call.group}];
    runs.group_ranks = call.group_ranks;
    runs.runs.push_back(run_of(rank, call, others));
  }
  add_steps(rank, digest);
  RankCollectives& result = digest.collectives;
  result.rank = rank_info(rank.trace).rank.value_or(0);
  result.span_ns = timeline(rank.trace, rank.links).span_ns();
  const IntervalSet all = union_of(rank.trace, calls);
  result.communication_ns = total_ns(all);
  result.overlap_ns = total_ns(intersected(all, other_moments));
  for (const auto& [name, list] : by_name)
    result.kinds.push_back(stats_of(rank.trace, name, list, other_moments));
  std::stable_sort(result.kinds.begin(), result.kinds.end(),
                   [](const CollectiveStats& a, const CollectiveStats& b) {
                     return a.time.total_ns > b.time.total_ns;
                   });
}

}  // namespace epilogue::trace
