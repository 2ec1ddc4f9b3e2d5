// SPDX-License-Identifier: Apache-2.0
#include "explain/host/idle_gaps.h"

#include <algorithm>

#include "explain/index/device_busy.h"

namespace epilogue::trace {
namespace {

int64_t overlap_ns(const Event& e, const Interval& gap) {
  return std::min(e.end_ns(), gap.end_ns) - std::max(e.ts_ns, gap.begin_ns);
}

// The device work that ended last before a gap, and the one that started first at its end.
void name_neighbours(const Trace& trace, const Links& links, int32_t device, const Interval& gap,
                     IdleGap& out) {
  uint32_t before = kNone;
  uint32_t after = kNone;
  for (const uint32_t i : links.device_work) {  // by start
    const Event& e = trace.events[i];
    if (e.pid != device) continue;
    if (e.end_ns() <= gap.begin_ns) {
      if (before == kNone || e.end_ns() > trace.events[before].end_ns()) before = i;
    } else if (e.ts_ns >= gap.end_ns) {
      after = i;
      break;
    }
  }
  if (before != kNone) out.before = std::string(trace.name(trace.events[before]));
  if (after == kNone) return;
  out.after = std::string(trace.name(trace.events[after]));
  const uint32_t launch = links.launch[after];
  out.was_launched =
      launch != kNone && trace.events[launch].end_ns() <= gap.begin_ns + gap.length_ns() / 2;
}

// The shortest event of each kind that takes half of the gap; of ops the longest, which is what the
// program called. The profiler's steps say nothing.
struct Hosts {
  const Event* call = nullptr;
  const Event* op = nullptr;
  const Event* annotation = nullptr;
  const Event* function = nullptr;

  void consider(const Trace& trace, const Event& e) {
    const auto keep = [&](const Event*& best, bool wants_longer) {
      if (best == nullptr || (e.dur_ns > best->dur_ns) == wants_longer) best = &e;
    };
    if (is_launch_category(e.category)) keep(call, false);
    const bool is_step = trace.name(e).starts_with("ProfilerStep#");
    if (e.category == Category::cpu_op && !is_step) keep(op, true);
    if (e.category == Category::user_annotation && !is_step) keep(annotation, false);
    if (e.category == Category::python_function) keep(function, false);
  }
};

void name_function(const Trace& trace, const Interval& gap, IdleGap& out) {
  const PythonFrame* best = nullptr;
  for (const PythonFrame& f : trace.frames) {
    const int64_t overlap = std::min(f.end_ns(), gap.end_ns) - std::max(f.ts_ns, gap.begin_ns);
    if (2 * overlap >= gap.length_ns() && (best == nullptr || f.dur_ns <= best->dur_ns)) best = &f;
  }
  if (best != nullptr) out.function = std::string(trace.strings[best->name]);
}

std::string name_or_none(const Trace& trace, const Event* e) {
  return e == nullptr ? std::string() : std::string(trace.name(*e));
}

void name_host(const Trace& trace, const Interval& gap, IdleGap& out) {
  Hosts hosts;
  for_each_event_around(trace, [&](const Event& e) {
    if (is_device_category(e.category) || 2 * overlap_ns(e, gap) < gap.length_ns()) return;
    hosts.consider(trace, e);
  });
  out.call = name_or_none(trace, hosts.call);
  out.op = name_or_none(trace, hosts.op);
  out.annotation = name_or_none(trace, hosts.annotation);
  out.function = name_or_none(trace, hosts.function);
}

void add_causes(const IdleCauses& causes, const Interval& gap, IdleGap& out) {
  for (size_t c = 0; c < causes.idle.size(); ++c)
    out.cause_ns[c] = total_ns(intersected(causes.idle[c], {gap}));
  const auto most = std::max_element(out.cause_ns.begin(), out.cause_ns.end());
  if (*most > 0) out.cause = static_cast<IdleCause>(most - out.cause_ns.begin());
}

}  // namespace

std::vector<IdleGap> idle_gaps(const Trace& trace, const Links& links, size_t most) {
  const Timeline time = timeline(trace, links);
  return idle_gaps(trace, links, busiest_device_causes(trace, links, time), most);
}

std::vector<IdleGap> idle_gaps(const Trace& trace, const Links& links, const BusiestDevice& busiest,
                               size_t most) {
  const Interval span = busiest.span;
  if (!busiest.device || span.length_ns() <= 0) return {};
  const IdleCauses& causes = busiest.causes;
  const UnsureQueue& unsure = busiest.unsure;
  IntervalSet longest = gaps(causes.busy, span);
  const size_t shown = std::min(longest.size(), most);
  // The earlier one of two that are as long.
  std::partial_sort(longest.begin(), longest.begin() + static_cast<ptrdiff_t>(shown), longest.end(),
                    [](const Interval& a, const Interval& b) {
                      return a.length_ns() != b.length_ns() ? a.length_ns() > b.length_ns()
                                                            : a.begin_ns < b.begin_ns;
                    });
  longest.resize(shown);
  const bool has_long_gap =
      !longest.empty() && is_long_gap(longest.front().length_ns(), span.length_ns());
  std::vector<IdleGap> list;
  for (const Interval& gap : longest) {
    IdleGap out = {.start_ns = gap.begin_ns, .dur_ns = gap.length_ns()};
    add_causes(causes, gap, out);
    const int64_t unsure_ns = total_ns(intersected(unsure.before_first, {gap})) +
                              total_ns(intersected(unsure.behind_others, {gap}));
    out.may_hide_work = 2 * unsure_ns >= gap.length_ns();
    name_neighbours(trace, links, *busiest.device, gap, out);
    name_host(trace, gap, out);
    if (has_long_gap) name_function(trace, gap, out);
    list.push_back(std::move(out));
  }
  return list;
}

}  // namespace epilogue::trace
