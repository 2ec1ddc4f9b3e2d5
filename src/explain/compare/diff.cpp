// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "explain/compare/diff_match.h"
#include "explain/compare/diff_parts.h"
#include "explain/index/aten_ops.h"
#include "explain/index/device_busy.h"
#include "explain/index/intervals.h"
#include "explain/timeline/time_account.h"

namespace epilogue::trace {
namespace {

constexpr double kSameMean = 0.05;  // means within 5 % are the same

struct Side {
  TimeAccount account;
  double steps = 0;
  double kernels = 0;
  double launches = 0;
  double ops = 0;
};

// The steps, each with the device work that it launched, which may outlast it.
IntervalSet step_windows(const Trace& trace, const Links& links) {
  std::vector<Interval> windows;
  windows.reserve(links.steps.size());
  for (const uint32_t step : links.steps)
    windows.push_back({trace.events[step].ts_ns, trace.events[step].end_ns()});
  for (const uint32_t i : links.device_work) {
    const uint32_t step = links.step[i];
    if (step == kNone) continue;
    windows[step].end_ns = std::max(windows[step].end_ns, trace.events[i].end_ns());
  }
  return united(std::move(windows));
}

// What counts as wall time of one trace, and what ran in it.
Side account_of(const Trace& trace, const Links& links, bool by_steps) {
  Side side;
  const IntervalSet windows =
      by_steps ? step_windows(trace, links) : wall_windows(trace, links, false);
  side.account = account_time(trace, links, windows);
  side.steps = static_cast<double>(links.steps.size());
  const Coverage wall(windows);
  // The span holds all events, also those of no length at its end.
  const auto is_within = [&](const Event& e) {
    return !by_steps || wall.contains(e.ts_ns) || wall.within_ns({e.ts_ns, e.end_ns()}) > 0;
  };
  for (const Event& e : trace.events) {
    if (e.category == Category::cpu_op && is_within(e)) ++side.ops;
    if (e.category == Category::kernel && is_within(e)) ++side.kernels;
  }
  for (const uint32_t i : links.launches)
    if (is_within(trace.events[i])) ++side.launches;
  return side;
}

void average_step(Side& side) {
  average_over(side.account, static_cast<int64_t>(side.steps));
  side.kernels /= side.steps;
  side.launches /= side.steps;
  side.ops /= side.steps;
}

std::string change_text(const std::array<double, 2>& n) {
  return count_text(n[0]) + " -> " + count_text(n[1]);
}

// What the host did differently, as the reason for idle time of the device.
std::string host_why(IdleCause cause, const TraceDiff& diff) {
  switch (cause) {
    case IdleCause::queue: return "work was launched and had not started yet";
    case IdleCause::launch:
      return fmt::format("{} {} for {} {}", change_text(diff.launches),
                         noun_for(diff.launches, "launch", "launches"), change_text(diff.kernels),
                         noun_for(diff.kernels, "kernel", "kernels"));
    case IdleCause::sync: return "the host waited for the device or for a copy";
    case IdleCause::data: return "the host was in the data loader";
    case IdleCause::host_in_ops:
    case IdleCause::host_between_ops:
      if (!diff.has_device_work)
        return fmt::format("{} {}", change_text(diff.ops), noun_for(diff.ops, "op", "ops"));
      return fmt::format("{} {} on the host, {} {}", change_text(diff.ops),
                         noun_for(diff.ops, "op", "ops"), change_text(diff.launches),
                         noun_for(diff.launches, "launch", "launches"));
    case IdleCause::other: return "no event of the host says why";
  }
  return "";
}

std::string idle_what(IdleCause cause, bool has_device_work) {
  if (!has_device_work) return "host between ops (Python, or what the trace does not show)";
  switch (cause) {
    case IdleCause::queue: return "device idle: launched work waits";
    case IdleCause::launch: return "device idle: host in launch calls";
    case IdleCause::sync: return "device idle: host synchronises";
    case IdleCause::data: return "device idle: host loads data";
    case IdleCause::host_in_ops: return "device idle: host in ops";
    case IdleCause::host_between_ops: return "device idle: host between ops (Python)";
    case IdleCause::other: return "unexplained";
  }
  return "";
}

void add_idle_parts(const Side& a, const Side& b, TraceDiff& diff) {
  for (size_t c = 0; c < kIdleCauses; ++c) {
    const auto cause = static_cast<IdleCause>(c);
    DiffPart part{idle_what(cause, diff.has_device_work), host_why(cause, diff),
                  a.account.idle_ns[c], b.account.idle_ns[c]};
    if (cause == IdleCause::other) diff.unexplained_ns = part.delta_ns();
    diff.parts.push_back(std::move(part));
  }
}

// Small changes go into one part for the slower and one for the faster. What did not change is
// none.
void merge_small(TraceDiff& diff, double min_part_pct) {
  const auto limit = static_cast<int64_t>(
      static_cast<double>(std::max(diff.wall_ns[0], diff.wall_ns[1])) * min_part_pct / 100);
  std::array<DiffPart, 2> merged;
  std::array<int64_t, 2> count{};
  std::vector<DiffPart> kept;
  for (DiffPart& part : diff.parts) {
    if (part.delta_ns() == 0) continue;
    const bool is_small = std::abs(part.delta_ns()) < limit && part.what != "unexplained";
    if (!is_small) {
      kept.push_back(std::move(part));
      continue;
    }
    const size_t slower = part.delta_ns() > 0 ? 1 : 0;
    ++count[slower];
    merged[slower].before_ns += part.before_ns;
    merged[slower].after_ns += part.after_ns;
  }
  for (size_t slower = 0; slower < 2; ++slower) {
    if (count[slower] == 0) continue;
    merged[slower].what =
        fmt::format("{} smaller change{}, {}", count[slower], count[slower] == 1 ? "" : "s",
                    slower == 1 ? "slower" : "faster");
    merged[slower].why = fmt::format("each under {} % of the wall time", min_part_pct);
    kept.push_back(std::move(merged[slower]));
  }
  diff.parts = std::move(kept);
  std::stable_sort(diff.parts.begin(), diff.parts.end(), [](const DiffPart& x, const DiffPart& y) {
    return std::abs(x.delta_ns()) > std::abs(y.delta_ns());
  });
}

// Kernels (or ops) by name, whatever they were matched with.
using Changes = std::map<std::string_view, KernelChange>;

Changes changes_by_name(const std::array<std::vector<KernelUse>, 2>& uses,
                        const KernelLabels& labels) {
  Changes changes;
  for (size_t side = 0; side < 2; ++side)
    for (const KernelUse& use : uses[side]) {
      KernelChange& change = changes[use.name];
      if (change.name.empty()) {
        change.name = use.name;
        change.label = labels.of(use.name);
      }
      change.count[side] += use.count;
      change.total_ns[side] += use.total_ns;
    }
  return changes;
}

bool is_changed(const KernelChange& change) {
  const double before = static_cast<double>(change.total_ns[0]) / change.count[0];
  const double after = static_cast<double>(change.total_ns[1]) / change.count[1];
  return change.count[0] != change.count[1] || std::abs(after - before) > kSameMean * before;
}

void add_changes(Changes changes, TraceDiff& diff) {
  const bool is_device = diff.has_device_work;
  auto& added = is_device ? diff.kernels_added : diff.ops_added;
  auto& removed = is_device ? diff.kernels_removed : diff.ops_removed;
  auto& changed = is_device ? diff.kernels_changed : diff.ops_changed;
  for (auto& [name, change] : changes) {
    if (change.count[0] == 0)
      added.push_back(std::move(change));
    else if (change.count[1] == 0)
      removed.push_back(std::move(change));
    else if (is_changed(change))
      changed.push_back(std::move(change));
  }
  for (auto* list : {&added, &removed, &changed})
    std::stable_sort(list->begin(), list->end(), [](const auto& x, const auto& y) {
      return x.total_ns[0] + x.total_ns[1] > y.total_ns[0] + y.total_ns[1];
    });
}

KernelLabels labels_of(const std::array<std::vector<KernelUse>, 2>& uses, bool has_device_work) {
  std::vector<std::string_view> names;
  if (has_device_work)
    for (const auto& side : uses)
      for (const KernelUse& use : side) names.push_back(use.name);
  return KernelLabels(names);
}

}  // namespace

namespace {

// By op: the type of the tensors that it spends most of its time on, as traces write it.
std::map<std::string_view, std::string_view> main_types(const Trace& trace) {
  std::map<std::pair<std::string_view, std::string_view>, int64_t> time;
  for (const Event& e : trace.events) {
    const OpArgs* args = e.category == Category::cpu_op ? trace.op_args(e) : nullptr;
    if (args == nullptr || args->inputs >= trace.inputs.size()) continue;
    for (const TensorShape& tensor : tensor_inputs(trace.inputs[args->inputs])) {
      if (tensor.dims.empty()) continue;  // a number
      time[{trace.name(e), tensor.type}] += e.dur_ns;
      break;
    }
  }
  std::map<std::string_view, std::pair<std::string_view, int64_t>> longest;
  for (const auto& [key, ns] : time)
    if (const auto [place, is_new] = longest.try_emplace(key.first, key.second, ns);
        !is_new && ns > place->second.second)
      place->second = {key.second, ns};
  std::map<std::string_view, std::string_view> types;
  for (const auto& [op, type] : longest) types[op] = type.first;
  return types;
}

std::string_view plain_type(std::string_view type) {
  constexpr std::string_view kPrefix = "c10::";
  return type.starts_with(kPrefix) ? type.substr(kPrefix.size()) : type;
}

// The same op of another type is another op: autocast is seen by nothing else on a CPU.
void name_changed_types(const Trace& before, const Trace& after, TraceDiff& diff) {
  constexpr std::string_view kSame = ": same op";
  const auto types_before = main_types(before);
  const auto types_after = main_types(after);
  for (DiffPart& part : diff.parts) {
    if (!part.what.ends_with(kSame)) continue;
    const std::string_view op =
        std::string_view(part.what).substr(0, part.what.size() - kSame.size());
    const auto a = types_before.find(op);
    const auto b = types_after.find(op);
    if (a == types_before.end() || b == types_after.end() || a->second == b->second) continue;
    part.what = fmt::format("{}: {} -> {}", op, plain_type(a->second), plain_type(b->second));
  }
}

std::string device_name(const Trace& trace, const Links& links) {
  const std::optional<int32_t> id = busiest_device(trace, links);
  for (const DeviceProperties& device : trace.devices)
    if (device.id == id) return device.name;
  return "";
}

}  // namespace

TraceDiff diff_traces(const Trace& before, const Links& before_links, const Trace& after,
                      const Links& after_links, const DiffOptions& options) {
  TraceDiff diff;
  diff.steps = {static_cast<int64_t>(before_links.steps.size()),
                static_cast<int64_t>(after_links.steps.size())};
  diff.by_steps = diff.steps[0] > 0 && diff.steps[1] > 0;
  diff.per_step = diff.by_steps && diff.steps[0] != diff.steps[1];
  Side a = account_of(before, before_links, diff.by_steps);
  Side b = account_of(after, after_links, diff.by_steps);
  if (diff.per_step)
    for (Side* side : {&a, &b}) average_step(*side);
  diff.wall_ns = {a.account.wall_ns, b.account.wall_ns};
  diff.busy_ns = {a.account.busy_ns, b.account.busy_ns};
  diff.kernels = {a.kernels, b.kernels};
  diff.launches = {a.launches, b.launches};
  diff.ops = {a.ops, b.ops};
  diff.devices = {device_name(before, before_links), device_name(after, after_links)};
  diff.has_device_work = a.account.has_device_work || b.account.has_device_work;
  const std::array<std::vector<KernelUse>, 2> uses = {kernel_uses(before, a.account),
                                                      kernel_uses(after, b.account)};
  const KernelLabels labels = labels_of(uses, diff.has_device_work);
  for (const Match& match : match_kernels(uses[0], uses[1]))
    diff.parts.push_back(part_of(match, labels, diff));
  if (!diff.has_device_work) name_changed_types(before, after, diff);
  add_idle_parts(a, b, diff);
  merge_small(diff, options.min_part_pct);
  // Ops of a trace without device work are not listed beside the other's kernels.
  std::array<std::vector<KernelUse>, 2> listed = uses;
  if (a.account.has_device_work != b.account.has_device_work)
    listed[a.account.has_device_work ? 1 : 0].clear();
  add_changes(changes_by_name(listed, labels), diff);
  return diff;
}

}  // namespace epilogue::trace
