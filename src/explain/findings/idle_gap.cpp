// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/claims.h"
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

constexpr double kIdleGapShare = 0.05;
constexpr int64_t kLeastGapNs = 20'000;
constexpr size_t kIdleGapsShown = 3;

// A kernel's name without the end that makes it unreadable.
std::string short_name(const std::string& name) {
  constexpr size_t kMost = 60;
  return name.size() <= kMost ? name : name.substr(0, kMost - 3) + "...";
}

// The host's calls in a gap: "in hipMemcpyWithStream (aten::to)".
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
    case IdleCause::profiler: return "the profiler did its own work";
    case IdleCause::host_in_ops: return "the host was in ops or calls";
    case IdleCause::host_between_ops: return "the host ran Python, or code that is not traced";
    case IdleCause::other: break;
  }
  return "the trace says nothing of the host";
}

// Work that was not recorded may have run: no idleness that anybody can act on.
Finding hidden_work(const IdleGap& gap) {
  Finding f;
  f.title = fmt::format(
      "the device shows no work for {} while recorded work waits: most likely it was "
      "busy with work that was not recorded",
      duration(gap.dur_ns));
  f.evidence.push_back("what waited was " + short_name(gap.after));
  advise(f,
         "record from an earlier moment (schedule(wait, warmup)), and all processes that use the "
         "device; judge the run by what is recorded");
  f.confidence = Confidence::low;
  f.kernels = {gap.before, gap.after};
  return f;
}

// One call of an op that starts no work takes most of it.
bool is_first_call(const Explanation& e, const IdleGap& gap) {
  const NoLaunchOp* longest = longest_no_launch(e);
  return longest != nullptr && longest->name == gap.op && 2 * longest->max_self_ns >= gap.dur_ns;
}

std::string remedy(const Explanation& e, const IdleGap& gap) {
  if (is_first_call(e, gap)) return std::string(kFirstCallAdvice);
  if (const std::string_view advice = slow_call_advice(gap.call); !advice.empty())
    return std::string(advice);
  switch (gap.cause) {
    case IdleCause::host_in_ops:
    case IdleCause::host_between_ops: {
      const std::string& where = !gap.annotation.empty() ? gap.annotation
                                 : !gap.function.empty() ? gap.function
                                                         : gap.op;
      return fmt::format(
          "move {} to where the device works meanwhile (a loader's worker, another "
          "thread, before the step), or make it cheaper",
          where.empty() ? "what the host does here" : where);
    }
    case IdleCause::sync:
      if (const std::string_view advice = sync_advice(gap.op); !advice.empty())
        return std::string(advice);
      return "let the host wait later, when there is other work for the device";
    case IdleCause::data: return "num_workers and prefetch_factor of the loader hide it";
    default: return "";
  }
}

// One stretch that is long by itself; in a loop of many like gaps, none is.
void find_idle_gap(const Explanation& e, std::vector<Finding>& out) {
  for (const IdleGap* gap : named_gaps(e)) {
    if (gap->may_hide_work) {
      out.push_back(hidden_work(*gap));
      continue;
    }
    Finding f;
    f.severity = Severity::warning;
    const bool is_hosts =
        gap->cause == IdleCause::host_in_ops || gap->cause == IdleCause::host_between_ops;
    f.title = fmt::format("the device idles {} at one stretch{}: {}", duration(gap->dur_ns),
                          is_hosts ? in_place(gap->annotation) : "", cause_text(*gap));
    const std::string host = host_text(*gap);
    f.evidence.push_back(host.empty() ? "no single call, op or annotation takes half of it"
                                      : "meanwhile the host was " + host);
    if (gap->before.empty() || gap->after.empty())
      f.evidence.push_back(gap->before.empty()
                               ? "before the first work of the device: " + short_name(gap->after)
                               : "after the last work of the device: " + short_name(gap->before));
    else
      f.evidence.push_back("between " + short_name(gap->before) + " and " + short_name(gap->after));
    f.action = remedy(e, *gap);
    f.saving_us = to_us(gap->dur_ns);
    for (int c = 0; c < kIdleCauses; ++c)
      claim_idle(e, f, {static_cast<IdleCause>(c)}, to_us(gap->cause_ns[static_cast<size_t>(c)]));
    f.kernels = {gap->before, gap->after};
    f.where = gap->cause == IdleCause::queue ? FindingPlace::device : FindingPlace::host;
    out.push_back(std::move(f));
  }
}

}  // namespace

std::vector<const IdleGap*> named_gaps(const Explanation& e) {
  std::vector<const IdleGap*> list;
  for (const IdleGap& gap : e.gaps) {
    if (to_us(gap.dur_ns) < kIdleGapShare * wall_us(e) || gap.dur_ns < kLeastGapNs ||
        list.size() == kIdleGapsShown)
      break;
    if (gap.after.empty() && gap.cause == IdleCause::other) continue;  // behind all work
    // Before its first recorded work the device may have been busy with what came before: the
    // verdict says so.
    if (gap.before.empty() && gap.cause == IdleCause::queue) continue;
    if (gap.cause == IdleCause::profiler) continue;  // no idleness without the profiler
    list.push_back(&gap);
  }
  return list;
}

constinit const ExplanationRule kIdleGapRule = {
    .id = "idle-gap",
    .says =
        "one long stretch in which the device idled, what ran before and after it, and what the "
        "host was in",
    .said_if =
        [] {
          return fmt::format("it is {} and {} or more; the longest {}",
                             share_of_span(kIdleGapShare), duration(kLeastGapNs), kIdleGapsShown);
        },
    .find = find_idle_gap,
    .confidence = Confidence::high,
    .is_general = true};

}  // namespace epilogue::trace
