// SPDX-License-Identifier: Apache-2.0
#include "explain/index/device_busy.h"

#include <algorithm>
#include <map>

namespace epilogue::trace {

Interval shown_window(const Trace& trace) {
  if (trace.selection) return {trace.selection->start_ns, trace.selection->end_ns};
  return {INT64_MIN, INT64_MAX};
}

Interval clipped(const Event& event, const Interval& window) {
  return {std::max(event.ts_ns, window.begin_ns), std::min(event.end_ns(), window.end_ns)};
}

IntervalSet device_busy(const Trace& trace, const Links& links, int32_t device) {
  const Interval window = shown_window(trace);
  std::vector<Interval> work;
  work.reserve(links.device_work.size());
  for (const uint32_t i : links.device_work) {
    const Event& e = trace.events[i];
    if (e.pid == device) work.push_back(clipped(e, window));
  }
  return united(std::move(work));
}

std::optional<int32_t> busiest_device(const Trace& trace, const Links& links) {
  // device_work is sorted by start: the union needs only how far each device has got.
  struct Progress {
    int64_t busy_ns = 0;
    int64_t reached_ns = INT64_MIN;
  };
  const Interval window = shown_window(trace);
  std::map<int32_t, Progress> devices;
  for (const uint32_t i : links.device_work) {
    const Event& e = trace.events[i];
    Progress& p = devices[e.pid];
    const Interval shown = clipped(e, window);
    const int64_t begin = std::max(shown.begin_ns, p.reached_ns);
    if (shown.end_ns > begin) p.busy_ns += shown.end_ns - begin;
    p.reached_ns = std::max(p.reached_ns, shown.end_ns);
  }
  std::optional<int32_t> best;
  for (const auto& [device, progress] : devices)
    if (!best || progress.busy_ns > devices[*best].busy_ns) best = device;
  return best;
}

}  // namespace epilogue::trace
