// SPDX-License-Identifier: Apache-2.0
#include "explain/ranks/rank_digest.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <unordered_map>

#include "epilogue/trace/host.h"
#include "epilogue/trace/time.h"
#include "explain/index/aten_ops.h"
#include "explain/index/device_busy.h"
#include "explain/index/op_tree.h"
#include "explain/ranks/collective_calls.h"
#include "explain/timeline/idle_causes.h"
#include "explain/timeline/work_kind.h"
#include "trace/step_name.h"

namespace epilogue::trace {
namespace {

// What hides a CPU's collectives: ops, but for those that post them.
IntervalSet ops_beside(const Trace& trace) {
  std::vector<Interval> list;
  for_each_event_around(trace, [&](const Event& e) {
    if (e.category != Category::cpu_op || is_cpu_collective(trace.name(e)) ||
        trace.name(e).starts_with("c10d::"))
      return;
    list.push_back({e.ts_ns, e.end_ns()});
  });
  return united(std::move(list));
}

// When the kernels that are no collectives ran; without a device, the ops.
IntervalSet other_work(const RankTrace& rank) {
  const Trace& trace = rank.trace;
  if (rank.links.device_work.empty() && rank.links.launches.empty()) return ops_beside(trace);
  WorkKinds kinds(trace);
  std::vector<Interval> list;
  // A selection also counts kernels beside those that it launched or that ran into it.
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
  CollectiveStats stats = {.name = name, .bytes = 0};
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
  uint32_t step = rank.links.step[call.event];
  if (step == kNone && e.category == Category::user_annotation)
    step = step_at(rank.trace, rank.links, e.ts_ns);
  if (step != kNone)
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

// A forward pass counts if all_reduce runs before the next one: a model may hold several modules of
// DistributedDataParallel, and one backward pass reduces for all of them.
void count_passes(const Trace& trace, RankCollectives& result) {
  // 'e' an optimizer's end, 'f' a forward pass, 'r' a reduction: in this order at one moment.
  struct Moment {
    int64_t ts_ns = 0;
    char kind = 0;
    int64_t dur_ns = 0;
    bool operator<(const Moment& other) const {
      return std::pair(ts_ns, kind) < std::pair(other.ts_ns, other.kind);
    }
  };
  std::vector<Moment> moments;
  for (const Event& e : trace.events) {
    if (e.category != Category::user_annotation && e.category != Category::cpu_op) continue;
    const std::string_view name = trace.name(e);
    if (name == "DistributedDataParallel.forward")
      moments.push_back({e.ts_ns, 'f', 0});
    else if (name.find("all_reduce") != std::string_view::npos ||
             name.find("allreduce") != std::string_view::npos)
      // A range holds the collective, an op posts it.
      moments.push_back({e.ts_ns, 'r', is_cpu_collective(name) ? e.dur_ns : 0});
    else if (name.starts_with("Optimizer.step#")) {
      moments.push_back({e.end_ns(), 'e', 0});
      ++result.optimizer_steps;
    }
  }
  std::sort(moments.begin(), moments.end());
  bool is_forward = false;
  bool is_after_step = false;
  for (const Moment& m : moments) {
    if (m.kind == 'r') {
      result.ddp_forwards += is_forward ? 1 : 0;
      result.reduces_after_steps += is_after_step && m.dur_ns > 0 ? 1 : 0;
      result.after_steps_ns += is_after_step ? m.dur_ns : 0;
    } else {
      is_after_step = m.kind == 'e';
    }
    if (m.kind != 'e') is_forward = m.kind == 'f';
  }
}

}  // namespace

void add_collectives(const RankTrace& rank, int64_t span_ns, RankDigest& digest) {
  const std::vector<CollectiveCall> calls = collective_calls(rank.trace, rank.links);
  const IntervalSet other_moments = calls.empty() ? IntervalSet() : other_work(rank);
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
  result.span_ns = span_ns;
  if (!calls.empty()) count_passes(rank.trace, result);
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

namespace {

RankWork work_of(WorkKind kind) {
  switch (kind) {
    case WorkKind::compute: return RankWork::compute;
    case WorkKind::memory: return RankWork::memory;
    case WorkKind::communication: return RankWork::communication;
  }
  return RankWork::memory;
}

// As the verdict of one trace divides time: compute hides what runs beside it, and communication
// counts where no other kernel runs.
std::optional<DeviceTime> device_time(const RankTrace& rank, const Timeline& time,
                                      WorkKinds& kinds) {
  const std::optional<int32_t> device = busiest_device(rank.trace, rank.links);
  if (!device || !time.start_ns) return std::nullopt;
  std::array<std::vector<Interval>, kRankWorks> lists;
  for (const uint32_t i : rank.links.device_work) {
    const Event& e = rank.trace.events[i];
    if (e.category != Category::kernel || e.pid != *device) continue;
    lists[static_cast<size_t>(work_of(kinds.of(i, rank.links)))].push_back({e.ts_ns, e.end_ns()});
  }
  const auto united_of = [&](RankWork work) { return united(lists[static_cast<size_t>(work)]); };
  const IntervalSet span = {{*time.start_ns, *time.end_ns}};
  const IntervalSet busy = intersected(device_busy(rank.trace, rank.links, *device), span);
  const IntervalSet compute = intersected(united_of(RankWork::compute), span);
  const IntervalSet others = subtracted(busy, compute);
  const IntervalSet communication = intersected(subtracted(others, united_of(RankWork::memory)),
                                                united_of(RankWork::communication));
  DeviceTime result;
  result.compute_ns = total_ns(compute);
  result.communication_ns = total_ns(communication);
  result.memory_ns = total_ns(others) - result.communication_ns;
  result.idle_ns = time.span_ns() - total_ns(busy);
  return result;
}

// One kernel, summed over ranks.
struct Sum {
  int64_t count = 0;
  int64_t ranks = 0;
  int64_t total_ns = 0;
  int64_t min_ns = 0;
  int64_t max_ns = 0;
  size_t min_at = 0;  // positions
  size_t max_at = 0;
  RankWork work = RankWork::memory;
};

void add_to(Sum& sum, const RankKernel& kernel, size_t position) {
  if (sum.ranks == 0 || kernel.total_ns < sum.min_ns) {
    sum.min_ns = kernel.total_ns;
    sum.min_at = position;
  }
  if (sum.ranks == 0 || kernel.total_ns > sum.max_ns) {
    sum.max_ns = kernel.total_ns;
    sum.max_at = position;
  }
  sum.work = kernel.work;
  sum.count += kernel.count;
  sum.total_ns += kernel.total_ns;
  ++sum.ranks;
}

}  // namespace

std::string_view rank_work_name(RankWork work) {
  constexpr std::array<std::string_view, kRankWorks> kNames = {"compute", "memory",
                                                               "communication"};
  return kNames[static_cast<size_t>(work)];
}

void add_kernels(const RankTrace& rank, const Timeline& time, StringPool& names,
                 RankDigest& digest) {
  const Trace& trace = rank.trace;
  WorkKinds kinds(trace);
  digest.time = device_time(rank, time, kinds);
  std::unordered_map<StringId, size_t> positions;  // by the trace's own id
  for (const uint32_t i : rank.links.device_work) {
    const Event& e = trace.events[i];
    if (e.category != Category::kernel) continue;
    const auto [found, is_new] = positions.emplace(e.name, digest.kernels.size());
    if (is_new)
      digest.kernels.push_back(
          {names.intern(trace.name(e)), work_of(kinds.of(i, rank.links)), 0, 0});
    RankKernel& kernel = digest.kernels[found->second];
    ++kernel.count;
    kernel.total_ns += e.dur_ns;
  }
}

std::vector<KernelOverRanks> kernels_over_ranks(const RankDigests& digests,
                                                const std::vector<int64_t>& rank_numbers) {
  std::unordered_map<StringId, Sum> sums;
  std::vector<size_t> compared;
  for (size_t r = 0; r < digests.ranks.size(); ++r) {
    const RankDigest& rank = digests.ranks[r];
    if (rank.is_truncated || !rank.has_kernels) continue;
    compared.push_back(r);
    for (const RankKernel& kernel : rank.kernels) add_to(sums[kernel.name], kernel, r);
  }
  std::vector<KernelOverRanks> result;
  for (const auto& [name, sum] : sums) {
    KernelOverRanks k;
    k.name = digests.names[name];
    k.work = sum.work;
    k.count = sum.count;
    k.ranks = sum.ranks;
    k.total_ns = sum.total_ns;
    k.mean_ns = sum.total_ns / std::ssize(compared);
    k.max_ns = sum.max_ns;
    k.max_rank = rank_numbers[sum.max_at];
    // A rank that did not run it took no time for it.
    k.min_ns = sum.ranks < std::ssize(compared) ? 0 : sum.min_ns;
    if (sum.ranks == std::ssize(compared)) k.min_rank = rank_numbers[sum.min_at];
    result.push_back(std::move(k));
  }
  std::sort(result.begin(), result.end(), [](const KernelOverRanks& a, const KernelOverRanks& b) {
    return a.total_ns != b.total_ns ? a.total_ns > b.total_ns : a.name < b.name;
  });
  return result;
}

void RankDigests::add(const RankTrace& rank) {
  RankDigest digest;
  const Timeline time = timeline(rank.trace, rank.links);
  digest.identity = rank_identity(rank.trace, names);
  digest.is_truncated = rank.trace.import.is_truncated;
  digest.has_kernels = rank.links.kernels > 0;
  if (!digest.is_truncated || !rank.links.device_work.empty())
    digest.bound = judge_time(rank.trace, rank.links, time,
                              busiest_device_causes(rank.trace, rank.links, time),
                              profiler_cost(rank.trace, rank.links))
                       .whole.bound;
  digest.busy_pct = time.busy_pct();
  add_collectives(rank, time.span_ns(), digest);
  add_process_groups(rank.trace, names, digest);
  add_kernels(rank, time, names, digest);
  if (const auto host = host_time(rank.trace, rank.links)) {
    for (const HostRange& range : host->ranges)
      digest.host_ns["range " + range.name] += range.self_ns;
    for (const HostFunction& f : host->functions) digest.host_ns[f.name] += f.self_ns;
    for (const HostOp& op : host->ops) digest.host_ns[op.name] += op.self_ns;
  }
  ranks.push_back(std::move(digest));
}

}  // namespace epilogue::trace
