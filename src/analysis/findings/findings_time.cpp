// SPDX-License-Identifier: Apache-2.0
// Findings about where the time goes: verdict, launches, waits, copies, the profiler itself.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/findings/findings.h"

namespace epilogue::trace {
namespace {

// "cudaLaunchKernel: 96 calls, median 4.00 us, in all 1.01 ms"
std::string times_line(const std::string& name, const std::string& count,
                       const Distribution& time) {
  return fmt::format("{}: {}, median {}, in all {}", name, count, duration(time.median_ns),
                     duration(time.total_ns));
}

bool is_worth_it(const Explanation& e, double saving_us) {
  return saving_us > kMinShare * wall_us(e);
}

// Device time that some idle cause takes, on the busiest device.
int64_t idle_ns(const Explanation& e, IdleCause cause) {
  return e.idle.empty() ? 0 : e.idle.front().of(cause);
}

std::string in_place(const std::string& where) { return where.empty() ? "" : " in " + where; }

}  // namespace

void find_verdict(const Explanation& e, std::vector<Finding>& out) {
  Finding f;
  f.id = "verdict";
  const Verdict& whole = e.verdicts.whole;
  f.title = bound_name(whole.bound);
  if (const std::optional<double> busy = e.timeline.busy_pct()) {
    f.title += fmt::format(": the device works {:.0f} % of the time", *busy);
    if (whole.judged_pct && (*busy >= kDeviceBoundPct) != (*whole.judged_pct >= kDeviceBoundPct))
      f.title += fmt::format(", {:.1f} % as judged", *whole.judged_pct);
  }
  if (whole.bound == Bound::kUnknown) f.title += ", for a cause that the trace does not show";
  f.evidence = e.verdicts.whole.evidence;
  out.push_back(std::move(f));
}

void find_lost_data(const Explanation& e, std::vector<Finding>& out) {
  for (const HealthItem& item : e.health)
    if (item.severity == Severity::kError)
      out.push_back({item.id, Severity::kError, item.detail, {}, {}});
}

void find_profiler_cost(const Explanation& e, std::vector<Finding>& out) {
  const ProfilerCost& cost = e.verdicts.profiler;
  if (!is_worth_it(e, to_us(cost.total_ns))) return;
  Finding f;
  f.id = "profiler-cost";
  f.title = fmt::format("recording cost the host about {} of {}", duration(cost.total_ns),
                        duration(e.timeline.span_ns()));
  f.evidence.push_back(fmt::format(
      "{} ops, {} {:.2f} us each{}", e.ops, cost.is_measured ? "measured at" : "estimated at",
      cost.ns_per_op / kNsPerUs,
      cost.is_inflated ? " (shapes, stacks or memory were recorded: they cost most)" : ""));
  out.push_back(std::move(f));
}

void find_launch_cost(const Explanation& e, std::vector<Finding>& out) {
  const LaunchStats& l = e.launches;
  const int64_t idle = idle_ns(e, IdleCause::kLaunch);
  if (l.launches == 0 || !is_worth_it(e, to_us(idle))) return;
  Finding f;
  f.id = "launch-cost";
  f.severity = Severity::kWarning;
  f.title = fmt::format("the device waits {} while the host launches {}", duration(idle),
                        counted(l.launches, "time", "times"));
  if (l.kernels_with_launch > 0)
    f.evidence.push_back(
        fmt::format("{} of {} kernels are over sooner than the call that launches them",
                    l.kernels_shorter_than_launch, l.kernels_with_launch));
  if (!l.launching_calls.empty()) {
    const CallStats& call = l.launching_calls.front();
    f.evidence.push_back(
        times_line(call.name, counted(call.time.count, "call", "calls"), call.time));
  }
  const std::optional<SlowCall>& slow = l.outlier;
  if (slow)
    f.evidence.push_back(fmt::format(
        "one {} takes {} of that{}", slow->name, duration(slow->dur_ns),
        slow->is_first ? ", the first launch of its kernel: most likely it loads code to the "
                         "device; calls before the recording (a warm-up) take it out"
                       : ": look at that one, not at their number"));
  // Beside an outlier, launches that take less of the wall time are not what to work on.
  constexpr double kMinRestShare = 0.05;
  if (!slow || to_us(idle - slow->dur_ns) >= kMinRestShare * wall_us(e))
    f.evidence.emplace_back(
        "fewer, larger launches help: CUDA graphs (torch.compile mode=\"reduce-overhead\"), "
        "fusion, larger batches");
  f.saving_us = to_us(idle);
  out.push_back(std::move(f));
}

void find_syncs(const Explanation& e, std::vector<Finding>& out) {
  const int64_t idle = idle_ns(e, IdleCause::kSync);
  if (!is_worth_it(e, to_us(idle))) return;
  Finding f;
  f.id = "sync";
  f.severity = Severity::kWarning;
  f.title =
      fmt::format("the device idles {} while the host waits for it or for copies", duration(idle));
  constexpr size_t kShown = 3;
  for (size_t i = 0; i < std::min(kShown, e.hot_spots.syncs.size()); ++i) {
    const SyncSpot& spot = e.hot_spots.syncs[i];
    f.evidence.push_back(fmt::format("{}{}: {}, {}{}", spot.call, in_place(spot.where),
                                     counted(spot.time.count, "time", "times"),
                                     duration(spot.time.total_ns),
                                     spot.is_implied ? ", implied by the op" : ""));
  }
  f.saving_us = to_us(idle);
  out.push_back(std::move(f));
}

void find_data_loader(const Explanation& e, std::vector<Finding>& out) {
  const int64_t idle = idle_ns(e, IdleCause::kData);
  if (!is_worth_it(e, to_us(idle))) return;
  Finding f;
  f.id = "data-loader";
  f.severity = Severity::kWarning;
  f.title = fmt::format("the device idles {} while the host waits for data", duration(idle));
  constexpr size_t kShown = 3;
  for (size_t i = 0; i < std::min(kShown, e.hot_spots.loaders.size()); ++i) {
    const LoaderSpot& spot = e.hot_spots.loaders[i];
    f.evidence.push_back(
        times_line(spot.name, counted(spot.time.count, "time", "times"), spot.time));
  }
  f.evidence.emplace_back(
      "more loader workers (num_workers), fetching ahead (prefetch_factor) or cheaper decoding "
      "help");
  f.saving_us = to_us(idle);
  out.push_back(std::move(f));
}

void find_pageable_copies(const Explanation& e, std::vector<Finding>& out) {
  int64_t total_ns = 0;
  std::vector<std::string> evidence;
  for (const CopySpot& copy : e.hot_spots.copies) {
    if (!copy.is_pageable) continue;
    total_ns += copy.time.total_ns;
    std::string line =
        fmt::format("{}{}: {}, {}", copy.name, in_place(copy.where),
                    counted(copy.time.count, "copy", "copies"), duration(copy.time.total_ns));
    if (copy.bandwidth_gb_s) line += fmt::format(", {:.1f} GB/s", *copy.bandwidth_gb_s);
    evidence.push_back(std::move(line));
  }
  if (!is_worth_it(e, to_us(total_ns))) return;
  evidence.emplace_back("pin the host's memory (pin_memory=True) and copy with non_blocking=True");
  out.push_back({"pageable-copies",
                 Severity::kWarning,
                 fmt::format("copies of pageable memory take {}", duration(total_ns)),
                 std::move(evidence),
                 {}});
}

void find_collectives(const Explanation& e, std::vector<Finding>& out) {
  const int64_t exposed = e.collectives.communication_ns - e.collectives.overlap_ns;
  if (!is_worth_it(e, to_us(exposed))) return;
  Finding f;
  f.id = "exposed-collectives";
  f.severity = Severity::kWarning;
  f.title = fmt::format("collectives that no other kernel hides take {}", duration(exposed));
  for (const CollectiveStats& c : e.collectives.kinds)
    f.evidence.push_back(fmt::format("{}: {}, {}, of that {} exposed", c.name,
                                     counted(c.time.count, "time", "times"),
                                     duration(c.time.total_ns), duration(c.exposed_ns)));
  f.evidence.emplace_back(
      "a rank that arrives early waits here: explain the folder with all ranks to see for whom");
  f.saving_us = to_us(exposed);
  out.push_back(std::move(f));
}

void find_no_launch_ops(const Explanation& e, std::vector<Finding>& out) {
  int64_t self_ns = 0;
  int64_t count = 0;
  const NoLaunchOp* longest = nullptr;
  for (const NoLaunchOp& op : e.chains.no_launch) {
    self_ns += op.self_ns;
    count += op.count;
    if (longest == nullptr || op.max_self_ns > longest->max_self_ns) longest = &op;
  }
  if (!is_worth_it(e, to_us(self_ns))) return;
  Finding f;
  f.id = "no-launch-ops";
  // One op that takes more than all others together is no habit of the program.
  const bool is_one = 2 * longest->max_self_ns > self_ns;
  f.title = is_one ? fmt::format("one {} starts no device work and takes {} of the host's time",
                                 longest->name, duration(longest->max_self_ns))
                   : fmt::format("{} start no device work and take {} of the host's time",
                                 counted(count, "op", "ops"), duration(self_ns));
  constexpr size_t kShown = 4;
  for (size_t i = 0; i < std::min(kShown, e.chains.no_launch.size()); ++i) {
    const NoLaunchOp& op = e.chains.no_launch[i];
    f.evidence.push_back(fmt::format("{}: {}, {}", op.name, counted(op.count, "time", "times"),
                                     duration(op.self_ns)));
  }
  f.evidence.emplace_back(
      is_one ? "a first call may pay for initialisation: schedule(wait, warmup) leaves it out of "
               "the trace; if it comes again, its stack (with_stack) says where from"
             : "views and allocations before kernels, mostly: torch.compile leaves most of them "
               "out, CUDA graphs all");
  if (!is_one && e.verdicts.whole.bound == Bound::kOverhead) f.saving_us = to_us(self_ns);
  out.push_back(std::move(f));
}

// A mean hides a cold first step: compare with the median.
void find_slow_steps(const Explanation& e, std::vector<Finding>& out) {
  constexpr double kSlow = 1.5;
  constexpr size_t kEnough = 3;
  if (e.steps.size() < kEnough) return;
  std::vector<int64_t> walls;
  walls.reserve(e.steps.size());
  for (const Region& step : e.steps) walls.push_back(step.wall_ns());
  const int64_t median = distribution(std::move(walls)).value_or(Distribution()).median_ns;
  Finding f;
  double extra_us = 0;
  for (const Region& step : e.steps) {
    if (static_cast<double>(step.wall_ns()) < kSlow * static_cast<double>(median)) continue;
    extra_us += to_us(step.wall_ns() - median);
    f.evidence.push_back(fmt::format("{}: {} against a median of {}", step.name,
                                     duration(step.wall_ns()), duration(median)));
  }
  if (f.evidence.empty()) return;
  f.id = "slow-steps";
  f.title =
      fmt::format("{} of {} steps take over {} times the median: read the steps, not the mean",
                  f.evidence.size(), e.steps.size(), kSlow);
  f.saving_us = extra_us;
  out.push_back(std::move(f));
}

}  // namespace epilogue::trace
