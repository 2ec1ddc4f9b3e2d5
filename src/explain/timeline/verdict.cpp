// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/time.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "explain/index/device_busy.h"
#include "explain/index/op_tree.h"
#include "explain/timeline/idle_causes.h"
#include "explain/timeline/region_map.h"
#include "explain/timeline/work_kind.h"

namespace epilogue::trace {
namespace {

// The sentences that go with a verdict.

// The wall time of a region, by TimePart.
struct PartTimes {
  std::array<int64_t, kTimeParts> ns = {};
  // The parts of TimePart::queue in which work that was not recorded may have run (UnsureQueue).
  int64_t queue_before_first_ns = 0;
  int64_t queue_behind_others_ns = 0;

  int64_t of(TimePart part) const { return ns[static_cast<size_t>(part)]; }
  int64_t wall_ns() const { return std::accumulate(ns.begin(), ns.end(), int64_t{0}); }
  int64_t device_ns() const { return of(TimePart::compute) + of(TimePart::memory); }
  int64_t unsure_ns() const { return queue_before_first_ns + queue_behind_others_ns; }
  // Verdict::judged_pct. 100 where the profiler took all of the time.
  double judged_pct() const;
};

// Time that a verdict may blame, by verdict. Verdicts on the device itself blame none.
struct IdlePart {
  Bound bound;
  int64_t ns;
  std::string_view what;  // "idle while the host was in the data loader"
};
std::array<IdlePart, 5> idle_parts(const PartTimes& times);

// Precondition: the wall time is not 0.
std::vector<std::string> time_evidence(Bound bound, const PartTimes& times, const Region& region,
                                       const ProfilerCost& profiler);
// For cpu-only and no-kernels.
std::vector<std::string> missing_evidence(Bound bound, const Region& region);

// Causes of idleness below this share of the wall time are not worth a sentence.
constexpr double kNotablePct = 10;

double share_pct(int64_t part_ns, int64_t whole_ns) {
  return whole_ns == 0 ? 0 : static_cast<double>(part_ns) * 100 / static_cast<double>(whole_ns);
}

// The cause first, then what else is not small.
void add_reasons(std::vector<std::string>& list, Bound bound, const PartTimes& times) {
  const auto sentence = [&](const char* start, const IdlePart& part) {
    return fmt::format("{}: {} ({:.1f} %) {}.", start, format_duration_ns(part.ns),
                       share_pct(part.ns, times.wall_ns()), part.what);
  };
  const std::array<IdlePart, 5> parts = idle_parts(times);
  const Bound cause = bound == Bound::queue ? Bound::launch : bound;
  for (const IdlePart& part : parts)
    if (part.bound == cause) list.push_back(sentence("Largest loss", part));
  if (bound == Bound::queue)
    list.push_back(fmt::format("Of that, launch calls took {} only: launches are not the cause.",
                               format_duration_ns(times.of(TimePart::launch))));
  if (bound == Bound::compute || bound == Bound::memory)
    list.push_back(fmt::format(
        "{:.1f} % of its working time is matrix products, convolutions and attention (judged by "
        "kernel names; memory may limit products of few rows).",
        share_pct(times.of(TimePart::compute), times.device_ns())));
  for (const IdlePart& part : parts)
    if (part.bound != cause && share_pct(part.ns, times.wall_ns()) >= kNotablePct)
      list.push_back(sentence("Further loss", part));
}

std::string profiler_sentence(const PartTimes& times, const ProfilerCost& profiler) {
  const char* source = profiler.is_measured   ? "measured by the recorder"
                       : profiler.is_inflated ? "estimated, with shapes, stacks or memory recorded"
                                              : "estimated";
  return fmt::format(
      "The profiler's own {:.1f} us per op ({}) made up about {} of the idle time; it is taken out "
      "before judging.",
      profiler.ns_per_op * 1e-3, source, format_duration_ns(times.of(TimePart::profiler)));
}

// Where the share that decides is not the one that the device worked.
std::string judged_sentence(const PartTimes& times) {
  std::string out;
  if (times.of(TimePart::communication) > 0)
    out = fmt::format(" {} of collectives that no other kernel hides",
                      format_duration_ns(times.of(TimePart::communication)));
  if (times.of(TimePart::profiler) > 0)
    out += fmt::format("{} {} of the profiler's own time", out.empty() ? "" : " and",
                       format_duration_ns(times.of(TimePart::profiler)));
  if (times.unsure_ns() > 0)
    out += fmt::format("{} {} in which work that was not recorded may have run",
                       out.empty() ? "" : " and", format_duration_ns(times.unsure_ns()));
  return fmt::format("Without{}, it worked {:.1f} % of the time: the verdict rests on this share.",
                     out, times.judged_pct());
}

std::string before_first_sentence(const PartTimes& times) {
  return fmt::format(
      "Launched work waited {} before the first recorded work of the device. The device may have "
      "been busy then, with work that was launched before the recording: it is taken out before "
      "judging.",
      format_duration_ns(times.queue_before_first_ns));
}

std::string behind_others_sentence(const PartTimes& times) {
  return fmt::format(
      "Launched work waited {} on a stream that waits for an event, or without work on it "
      "before, while no recorded work ran. The device may have been busy with work that was not "
      "recorded: it is taken out before judging.",
      format_duration_ns(times.queue_behind_others_ns));
}

std::array<IdlePart, 5> idle_parts(const PartTimes& times) {
  return {
      {{Bound::overhead, times.of(TimePart::overhead),
        "idle while the host was in ops or between them"},
       {Bound::launch, times.of(TimePart::launch) + times.of(TimePart::queue) - times.unsure_ns(),
        "idle while the host was inside launch calls or launched work had not started"},
       {Bound::sync, times.of(TimePart::sync) + times.of(TimePart::communication),
        "idle while the host waited for the device, or in collectives that no kernel hides"},
       {Bound::data, times.of(TimePart::data), "idle while the host was in the data loader"},
       {Bound::unknown, times.of(TimePart::other),
        "idle while the trace says nothing of the host: the cause of this idle time is unknown"}}};
}

double PartTimes::judged_pct() const {
  const int64_t judged_ns = wall_ns() - of(TimePart::profiler) - unsure_ns();
  return judged_ns > 0 ? share_pct(device_ns(), judged_ns) : 100;
}

std::vector<std::string> time_evidence(Bound bound, const PartTimes& times, const Region& region,
                                       const ProfilerCost& profiler) {
  const int64_t busy = times.device_ns() + times.of(TimePart::communication);
  std::vector<std::string> list;
  list.push_back(fmt::format("The device worked {} of {} ({:.1f} %); launches: {}, kernels: {}.",
                             format_duration_ns(busy), format_duration_ns(times.wall_ns()),
                             share_pct(busy, times.wall_ns()), format_count(region.launches),
                             format_count(region.kernels)));
  const bool is_worked_half = share_pct(busy, times.wall_ns()) >= kDeviceBoundPct;
  if (is_worked_half != (times.judged_pct() >= kDeviceBoundPct))
    list.push_back(judged_sentence(times));
  add_reasons(list, bound, times);
  if (share_pct(times.queue_before_first_ns, times.wall_ns()) >= kNotablePct)
    list.push_back(before_first_sentence(times));
  if (share_pct(times.queue_behind_others_ns, times.wall_ns()) >= kNotablePct)
    list.push_back(behind_others_sentence(times));
  if (times.of(TimePart::profiler) > 0) list.push_back(profiler_sentence(times, profiler));
  return list;
}

std::vector<std::string> missing_evidence(Bound bound, const Region& region) {
  if (bound == Bound::no_kernels)
    return {counted(region.launches, "launch", "launches") +
            " but no kernel: the profiler lost the device's records."};
  if (region.ops == 0) return {"There are neither ops nor launches nor device work."};
  return {"No launch and no device work: only the host was at work here."};
}

constexpr size_t kLongestShown = 3;
constexpr double kLeastShare = 0.1;
constexpr size_t kMostLetters = 90;  // of a kernel's name

struct NamedWork {
  StringId name = 0;
  StringId op = 0;  // that launched it; 0: not known
  int64_t count = 0;
  int64_t total_ns = 0;
};

// Without what is before the name, and without its parameters.
std::string_view bare_name(std::string_view name) {
  constexpr std::string_view kVoid = "void ";
  constexpr std::string_view kAnonymous = "(anonymous";
  if (name.starts_with(kVoid)) name.remove_prefix(kVoid.size());
  int depth = 0;  // of template arguments
  for (size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<' ? 1 : name[i] == '>' ? -1 : 0;
    if (name[i] == '(' && depth == 0 && i > 0 && !name.substr(i).starts_with(kAnonymous))
      return name.substr(0, i);
  }
  return name;
}

std::string sentence(const Trace& trace, const NamedWork& work, int64_t all_ns) {
  std::string name(bare_name(trace.strings[work.name]));
  if (name.size() > kMostLetters) name = name.substr(0, kMostLetters - 3) + "...";
  const std::string_view op = work.op == 0 ? std::string_view() : trace.strings[work.op];
  return fmt::format("{}{}{}: {} ({:.0f} % of the device's work), {}", name,
                     op.empty() || op == name ? "" : " in ", op == name ? "" : op,
                     format_duration_ns(static_cast<double>(work.total_ns)),
                     100.0 * static_cast<double>(work.total_ns) / static_cast<double>(all_ns),
                     counted(work.count, "time", "times"));
}

std::vector<std::string> longest_work(const Trace& trace, const Links& links, int32_t device) {
  std::map<std::pair<StringId, StringId>, NamedWork> sums;
  int64_t all_ns = 0;
  for (const uint32_t i : links.device_work) {
    const Event& e = trace.events[i];
    if (e.pid != device) continue;
    const StringId op = links.op[i] == kNone ? 0 : trace.events[links.op[i]].name;
    NamedWork& sum = sums[{e.name, op}];
    sum.name = e.name;
    sum.op = op;
    ++sum.count;
    sum.total_ns += e.dur_ns;
    all_ns += e.dur_ns;
  }
  std::vector<NamedWork> list;
  for (const auto& [key, sum] : sums)
    if (static_cast<double>(sum.total_ns) >= kLeastShare * static_cast<double>(all_ns))
      list.push_back(sum);
  std::stable_sort(list.begin(), list.end(),
                   [](const NamedWork& a, const NamedWork& b) { return a.total_ns > b.total_ns; });
  list.resize(std::min(list.size(), kLongestShown));
  std::vector<std::string> sentences;
  if (all_ns == 0) return sentences;
  for (const NamedWork& work : list) sentences.push_back(sentence(trace, work, all_ns));
  return sentences;
}

constexpr std::array<std::string_view, 10> kBoundNames = {
    "overhead-bound", "launch-bound", "memory-bound", "compute-bound",  "sync-bound",
    "data-bound",     "cpu-only",     "no-kernels",   "overhead-bound", "queue-bound"};
constexpr std::array<std::string_view, kTimeParts> kPartNames = {
    "compute", "memory", "communication", "overhead", "profiler",
    "launch",  "queue",  "sync",          "data",     "other"};

// The moments of one device by time part; the profiler's are those that it recorded itself, its
// cost per op is no set.
struct PartSets {
  std::array<IntervalSet, kTimeParts> sets;

  IntervalSet& of(TimePart part) { return sets[static_cast<size_t>(part)]; }
};

PartSets part_sets(const Trace& trace, const Links& links, BusiestDevice& busiest) {
  const Interval span = busiest.span;
  std::vector<Interval> compute;
  std::vector<Interval> memory;
  std::vector<Interval> communication;
  WorkKinds kinds(trace);
  for (const uint32_t i : links.device_work) {
    const Event& e = trace.events[i];
    if (e.category != Category::kernel || e.pid != busiest.device) continue;
    const WorkKind kind = kinds.of(i, links);
    (kind == WorkKind::compute  ? compute
     : kind == WorkKind::memory ? memory
                                : communication)
        .push_back({e.ts_ns, e.end_ns()});
  }
  IdleCauses& causes = busiest.causes;
  PartSets parts;
  // Communication counts only where no other kernel runs, as in the findings; compute hides what
  // runs beside it.
  parts.of(TimePart::compute) = intersected(united(std::move(compute)), {span});
  const IntervalSet others = subtracted(causes.busy, parts.of(TimePart::compute));
  parts.of(TimePart::communication) =
      intersected(subtracted(others, united(std::move(memory))), united(std::move(communication)));
  parts.of(TimePart::memory) = subtracted(others, parts.of(TimePart::communication));
  causes.busy = {};
  const auto take = [&](IdleCause cause) {
    return std::move(causes.idle[static_cast<size_t>(cause)]);
  };
  const IntervalSet in_ops = take(IdleCause::host_in_ops);
  const IntervalSet between = take(IdleCause::host_between_ops);
  // Disjoint sets: merged by start they are one, but for those that touch.
  std::vector<Interval> host(in_ops.size() + between.size());
  std::merge(in_ops.begin(), in_ops.end(), between.begin(), between.end(), host.begin(),
             [](const Interval& a, const Interval& b) { return a.begin_ns < b.begin_ns; });
  parts.of(TimePart::overhead) = united(std::move(host));
  parts.of(TimePart::profiler) = take(IdleCause::profiler);
  parts.of(TimePart::launch) = take(IdleCause::launch);
  parts.of(TimePart::queue) = take(IdleCause::queue);
  parts.of(TimePart::sync) = take(IdleCause::sync);
  parts.of(TimePart::data) = take(IdleCause::data);
  parts.of(TimePart::other) = take(IdleCause::other);
  return parts;
}

// The profiler's cost in ops that began while the device idled for the host, as running sums.
class IdleProfilerCost {
 public:
  IdleProfilerCost(const Trace& trace, const Links& links, const Coverage& overhead,
                   int64_t ns_per_op) {
    const std::vector<int64_t> self_ns = self_times_ns(trace, links);
    for (uint32_t i = 0; i < trace.events.size(); ++i) {
      const Event& e = trace.events[i];
      if (e.category == Category::cpu_op && overhead.contains(e.ts_ns))
        costs_.push_back({e.ts_ns, std::min(self_ns[i], ns_per_op)});
    }
    std::sort(costs_.begin(), costs_.end());
    for (size_t i = 1; i < costs_.size(); ++i) costs_[i].second += costs_[i - 1].second;
  }

  int64_t within_ns(Interval window) const {
    return before(window.end_ns) - before(window.begin_ns);
  }

 private:
  int64_t before(int64_t ts_ns) const {
    const auto after = std::lower_bound(costs_.begin(), costs_.end(), std::pair(ts_ns, INT64_MIN));
    return after == costs_.begin() ? 0 : std::prev(after)->second;
  }
  std::vector<std::pair<int64_t, int64_t>> costs_;  // start, sum up to and with this op
};

// The device limits, or the largest cause of its idleness does.
Bound bound_of(const PartTimes& times) {
  const int64_t device = times.device_ns();
  const auto idle = idle_parts(times);
  const auto worst = std::max_element(
      idle.begin(), idle.end(), [](const IdlePart& a, const IdlePart& b) { return a.ns < b.ns; });
  if (times.judged_pct() < kDeviceBoundPct && worst->ns > 0) {
    const bool is_queue =
        times.of(TimePart::queue) - times.unsure_ns() > times.of(TimePart::launch);
    return worst->bound == Bound::launch && is_queue ? Bound::queue : worst->bound;
  }
  const bool is_compute = static_cast<double>(times.of(TimePart::compute)) * 100 >=
                          static_cast<double>(device) * kComputeBoundPct;
  return is_compute && device > 0 ? Bound::compute : Bound::memory;
}

class Judge {
 public:
  Judge(const Trace& trace, const Links& links, const Timeline& time, BusiestDevice busiest,
        const ProfilerCost& profiler)
      : links_(links), span_(busiest.span), unsure_(std::move(busiest.unsure)) {
    std::vector<Region> regions = map_regions(trace, links).regions;
    verdicts_.profiler = profiler;
    if (busiest.device) parts_ = part_sets(trace, links, busiest);
    for (const IntervalSet& set : parts_.sets) coverage_.emplace_back(set);
    profiler_.emplace(trace, links, coverage_[static_cast<size_t>(TimePart::overhead)],
                      static_cast<int64_t>(verdicts_.profiler.ns_per_op));
    Region whole = {.start_ns = span_.begin_ns, .end_ns = span_.end_ns, .kernels = links.kernels};
    whole.ops = std::count_if(trace.events.begin(), trace.events.end(),
                              [](const Event& e) { return e.category == Category::cpu_op; });
    whole.copies = static_cast<int64_t>(links.device_work.size()) - links.kernels;
    whole.launches = static_cast<int64_t>(links.launches.size());
    whole.device_busy_ns = time.devices.empty() ? 0 : time.devices.front().busy_ns;
    whole.device_start_ns = whole.start_ns;
    whole.device_end_ns = whole.end_ns;
    whole.window_busy_ns = whole.device_busy_ns;
    verdicts_.whole = judge(whole);
    add_longest_work(trace, time);
    for (Region& region : regions) {
      Verdict verdict = judge(region);
      verdicts_.regions.push_back({std::move(region), std::move(verdict)});
    }
  }

  Verdicts take() { return std::move(verdicts_); }

 private:
  // Where the device limits the run, what it works on is the reason.
  void add_longest_work(const Trace& trace, const Timeline& time) {
    Verdict& whole = verdicts_.whole;
    if (whole.bound != Bound::compute && whole.bound != Bound::memory) return;
    if (time.devices.empty()) return;
    for (std::string& line : longest_work(trace, links_, time.devices.front().device))
      whole.evidence.push_back(std::move(line));
  }

  Verdict judge(const Region& region) const {
    Verdict verdict;
    if (region.kernels == 0 && region.launches > 0 && links_.launches_without_kernel > 0) {
      verdict.bound = Bound::no_kernels;
    } else if (region.kernels + region.copies + region.launches == 0 &&
               region.device_busy_ns + region.window_busy_ns == 0) {
      verdict.bound = Bound::cpu_only;
    } else if (region.device_end_ns > region.device_start_ns) {
      const PartTimes times = part_times({region.device_start_ns, region.device_end_ns});
      verdict.bound = bound_of(times);
      verdict.judged_pct = times.judged_pct();
      for (const int64_t ns : times.ns)
        verdict.part_pct.push_back(static_cast<double>(ns) * 100 /
                                   static_cast<double>(times.wall_ns()));
      verdict.evidence = time_evidence(verdict.bound, times, region, verdicts_.profiler);
      return verdict;
    }
    verdict.evidence = missing_evidence(verdict.bound, region);
    return verdict;
  }

  PartTimes part_times(Interval window) const {
    PartTimes times;
    for (size_t i = 0; i < kTimeParts; ++i) times.ns[i] = coverage_[i].within_ns(window);
    // A region may reach out of the span by nothing but an annotation of another thread.
    int64_t& other = times.ns[static_cast<size_t>(TimePart::other)];
    other += window.length_ns() - times.wall_ns();
    int64_t& overhead = times.ns[static_cast<size_t>(TimePart::overhead)];
    times.queue_before_first_ns = total_ns(intersected(unsure_.before_first, {window}));
    times.queue_behind_others_ns = total_ns(intersected(unsure_.behind_others, {window}));
    const int64_t profiler = std::min(overhead, profiler_->within_ns(window));
    times.ns[static_cast<size_t>(TimePart::profiler)] += profiler;
    overhead -= profiler;
    return times;
  }

  const Links& links_;
  Interval span_;
  PartSets parts_;
  UnsureQueue unsure_;
  std::vector<Coverage> coverage_;
  std::optional<IdleProfilerCost> profiler_;
  Verdicts verdicts_;
};

}  // namespace

std::string_view bound_name(Bound bound) { return kBoundNames[static_cast<size_t>(bound)]; }
std::string_view time_part_name(TimePart part) { return kPartNames[static_cast<size_t>(part)]; }

Verdicts judge_time(const Trace& trace, const Links& links, const Timeline& time,
                    BusiestDevice busiest, const ProfilerCost& profiler) {
  return Judge(trace, links, time, std::move(busiest), profiler).take();
}

Verdicts judge_time(const Trace& trace, const Links& links) {
  const Timeline time = timeline(trace, links);
  return judge_time(trace, links, time, busiest_device_causes(trace, links, time),
                    profiler_cost(trace, links));
}

}  // namespace epilogue::trace
