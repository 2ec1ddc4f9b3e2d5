// SPDX-License-Identifier: Apache-2.0
// Findings about what the device or the host waits for.
#include <fmt/format.h>

#include <algorithm>

#include "explain/findings/host_shares.h"
#include "explain/findings/rules.h"

namespace epilogue::trace {
namespace {

std::string in_place(const std::string& where) { return where.empty() ? "" : " in " + where; }

// What to write instead of an op that makes the host wait; "" where that is not known.
std::string_view sync_advice(std::string_view op) {
  struct Advice {
    std::string_view op;
    std::string_view text;
  };
  constexpr Advice kAdvice[] = {
      {"aten::item",
       "aten::item needs the value on the host: keep it on the device (sum it up there, "
       "and print it every so many steps), or decide with torch.where"},
      {"aten::_local_scalar_dense", "keep the value on the device instead of reading it"},
      {"aten::is_nonzero", "an if on a tensor reads it: torch.where decides on the device"},
      {"aten::nonzero",
       "a boolean mask makes the host wait for its size: torch.where or masked_fill "
       "keep the size"},
      {"aten::index",
       "a boolean mask makes the host wait for its size: torch.where or masked_fill "
       "keep the size; an index from the host is copied each time"},
      {"aten::masked_select", "its size is read on the host: torch.where or masked_fill keep it"},
      {"aten::to",
       "a copy from memory that is not pinned blocks: pin_memory=True and "
       "non_blocking=True"},
      {"aten::cpu", "a copy to the host blocks: copy fewer times, or with non_blocking=True"}};
  for (const Advice& advice : kAdvice)
    if (advice.op == op) return advice.text;
  return "";
}

void find_syncs(const Explanation& e, std::vector<Finding>& out) {
  const int64_t idle = idle_ns(e, IdleCause::sync);
  if (!is_worth_it(e, to_us(idle))) return;
  Finding f;
  f.severity = Severity::warning;
  f.title =
      fmt::format("the device idles {} while the host waits for it or for copies", duration(idle));
  constexpr size_t kShown = 3;
  for (size_t i = 0; i < std::min(kShown, e.hot_spots.syncs.size()); ++i) {
    const SyncSpot& spot = e.hot_spots.syncs[i];
    f.evidence.push_back(
        fmt::format("{}{}: {}, the host waits {}{}", spot.call, in_place(spot.where),
                    counted(spot.time.count, "time", "times"), duration(spot.time.total_ns),
                    spot.is_implied ? ", implied by the op" : ""));
  }
  if (!e.hot_spots.syncs.empty() && e.hot_spots.syncs.front().is_implied)
    if (const std::string_view advice = sync_advice(e.hot_spots.syncs.front().where);
        !advice.empty())
      advise(f, advice);
  f.saving_us = to_us(idle);
  out.push_back(std::move(f));
}

// A kernel's name without the end that makes it unreadable.
std::string short_name(const std::string& name) {
  constexpr size_t kMost = 60;
  return name.size() <= kMost ? name : name.substr(0, kMost - 3) + "...";
}

// What the host did in a gap: "in hipMemcpyWithStream (aten::to)".
std::string host_text(const IdleGap& gap) {
  std::vector<std::string> parts;
  for (const std::string* name : {&gap.call, &gap.op, &gap.annotation, &gap.function})
    if (!name->empty() && std::find(parts.begin(), parts.end(), *name) == parts.end())
      parts.push_back(*name);
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "in " : ", in ") + part;
  return text;
}

std::string cause_text(const IdleGap& gap) {
  switch (gap.cause) {
    case IdleCause::queue: return "work was launched and had not started";
    case IdleCause::launch: return "the host launched work";
    case IdleCause::sync: return "the host waited";
    case IdleCause::data: return "the host loaded data";
    case IdleCause::host_in_ops: return "the host was in ops or calls";
    case IdleCause::host_between_ops: return "the host ran Python, or code that is not traced";
    case IdleCause::other: break;
  }
  return "the trace says nothing of the host";
}

// One stretch that is long by itself. Where the sums say it all (a loop of many like gaps), none
// is.
void find_idle_gap(const Explanation& e, std::vector<Finding>& out) {
  constexpr double kLongShare = 0.05;
  constexpr int64_t kLeastGapNs = 20'000;
  size_t shown = 0;
  for (const IdleGap& gap : e.gaps) {
    if (to_us(gap.dur_ns) < kLongShare * wall_us(e) || gap.dur_ns < kLeastGapNs || shown == 3)
      break;
    if (gap.after.empty() && gap.cause == IdleCause::other) continue;  // behind all work
    // Before its first recorded work the device may have been busy with what came before.
    if (gap.before.empty() && gap.cause == IdleCause::queue) continue;
    Finding f;
    f.severity = Severity::warning;
    f.title = fmt::format("the device idles {} at one stretch: {}", duration(gap.dur_ns),
                          cause_text(gap));
    const std::string host = host_text(gap);
    f.evidence.push_back(host.empty() ? "no single call, op or annotation takes half of it"
                                      : "meanwhile the host was " + host);
    if (gap.before.empty() || gap.after.empty())
      f.evidence.push_back(gap.before.empty()
                               ? "before the first work of the device: " + short_name(gap.after)
                               : "after the last work of the device: " + short_name(gap.before));
    else
      f.evidence.push_back("between " + short_name(gap.before) + " and " + short_name(gap.after));
    f.saving_us = to_us(gap.dur_ns);
    f.kernels = {gap.before, gap.after};
    f.where = gap.cause == IdleCause::queue ? FindingPlace::device : FindingPlace::host;
    out.push_back(std::move(f));
    ++shown;
  }
}

// What to do about calls that start no work and take long.
std::string_view call_advice(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != name.npos; };
  if (has("HostAlloc") || has("HostRegister") || has("MallocHost"))
    return "pinned memory is allocated: allocate it once and use it again";
  if (has("Free") || has("Malloc"))
    return "the allocator asks the driver for memory or gives it back: the first steps warm its "
           "cache; if it occurs again, memory is nearly full "
           "(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, smaller batches)";
  if (has("Module") || has("FuncGetAttributes") || has("Library"))
    return "code is loaded to the device: calls before the recording (a warm-up) take it out";
  return "if it occurs in every step, its stack (with_stack) says where it comes from";
}

bool is_wait_or_launch(const CallStats& call) {
  return call.starts_work || is_sync_call_name(call.name);
}

void find_slow_calls(const Explanation& e, std::vector<Finding>& out) {
  constexpr double kSlowShare = 0.05;
  for (const CallStats& call : e.launches.calls) {
    if (is_wait_or_launch(call) || to_us(call.time.total_ns) < kSlowShare * wall_us(e)) continue;
    Finding f;
    f.severity = Severity::warning;
    f.title =
        fmt::format("{} takes {} of the host's time", call.name, duration(call.time.total_ns));
    f.evidence.push_back(fmt::format("{}, the longest {}",
                                     counted(call.time.count, "call", "calls"),
                                     duration(call.time.max_ns)));
    advise(f, call_advice(call.name));
    if (e.verdicts.whole.judged_pct.value_or(100) < kDeviceBoundPct)
      f.cost_us = to_us(call.time.total_ns);
    out.push_back(std::move(f));
  }
}

void find_data_loader(const Explanation& e, std::vector<Finding>& out) {
  const int64_t idle = idle_ns(e, IdleCause::data);
  if (!is_worth_it(e, to_us(idle))) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("the device idles {} while the host waits for data", duration(idle));
  constexpr size_t kShown = 3;
  for (size_t i = 0; i < std::min(kShown, e.hot_spots.loaders.size()); ++i) {
    const LoaderSpot& spot = e.hot_spots.loaders[i];
    f.evidence.push_back(
        times_line(spot.name, counted(spot.time.count, "time", "times"), spot.time));
  }
  advise(f, loader_advice(e));
  f.saving_us = to_us(idle);
  out.push_back(std::move(f));
}

void find_pageable_copies(const Explanation& e, std::vector<Finding>& out) {
  constexpr size_t kShown = 3;
  int64_t total_ns = 0;
  size_t more = 0;
  std::vector<std::string> evidence;
  for (const CopySpot& copy : e.hot_spots.copies) {
    if (!copy.is_pageable) continue;
    total_ns += copy.time.total_ns;
    if (evidence.size() == kShown) {
      ++more;
      continue;
    }
    std::string line =
        fmt::format("{}{}: {}, {}", copy.name, in_place(copy.where),
                    counted(copy.time.count, "copy", "copies"), duration(copy.time.total_ns));
    if (copy.bandwidth_gb_s) line += fmt::format(", {:.1f} GB/s", *copy.bandwidth_gb_s);
    evidence.push_back(std::move(line));
  }
  if (!is_worth_it(e, to_us(total_ns))) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("copies of pageable memory take {}", duration(total_ns));
  f.evidence = std::move(evidence);
  if (more > 0) f.evidence.push_back(fmt::format("and {} more, each shorter", more));
  advise(f, "pin the host's memory (pin_memory=True) and copy with non_blocking=True");
  f.cost_us = to_us(total_ns);
  out.push_back(std::move(f));
}

void find_collectives(const Explanation& e, std::vector<Finding>& out) {
  const int64_t exposed = e.collectives.communication_ns - e.collectives.overlap_ns;
  if (!is_worth_it(e, to_us(exposed))) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("collectives that no other kernel hides take {}", duration(exposed));
  for (const CollectiveStats& c : e.collectives.kinds)
    f.evidence.push_back(fmt::format("{}: {}, {}, of that {} exposed", c.name,
                                     counted(c.time.count, "time", "times"),
                                     duration(c.time.total_ns), duration(c.exposed_ns)));
  advise(f,
         "a rank that arrives early waits here: explain the folder with all ranks to see for whom");
  f.saving_us = to_us(exposed);
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kSyncRule = {"sync", find_syncs, Confidence::high,
                                             FindingPlace::host};
constinit const ExplanationRule kIdleGapRule = {"idle-gap", find_idle_gap, Confidence::high};
constinit const ExplanationRule kSlowCallRule = {"slow-call", find_slow_calls, Confidence::medium,
                                                 FindingPlace::host};
constinit const ExplanationRule kDataLoaderRule = {"data-loader", find_data_loader,
                                                   Confidence::high, FindingPlace::host};
constinit const ExplanationRule kPageableCopiesRule = {"pageable-copies", find_pageable_copies};
constinit const ExplanationRule kExposedCollectivesRule = {"exposed-collectives", find_collectives};

}  // namespace epilogue::trace
