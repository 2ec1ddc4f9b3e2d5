// SPDX-License-Identifier: Apache-2.0
#include "analysis/device_busy.h"

#include <algorithm>
#include <map>

namespace epilogue::trace {

IntervalSet device_busy(const Trace& trace, const Links& links, int32_t device) {
  std::vector<Interval> work;
  work.reserve(links.device_work.size());
  for (const uint32_t i : links.device_work) {
    const Event& e = trace.events[i];
    if (e.pid == device) work.push_back({e.ts_ns, e.end_ns()});
  }
  return united(std::move(work));
}

std::optional<int32_t> busiest_device(const Trace& trace, const Links& links) {
  // device_work is sorted by start: the union needs only how far each device has got.
  struct Progress {
    int64_t busy_ns = 0;
    int64_t reached_ns = INT64_MIN;
  };
  std::map<int32_t, Progress> devices;
  for (const uint32_t i : links.device_work) {
    const Event& e = trace.events[i];
    Progress& p = devices[e.pid];
    const int64_t begin = std::max(e.ts_ns, p.reached_ns);
    if (e.end_ns() > begin) p.busy_ns += e.end_ns() - begin;
    p.reached_ns = std::max(p.reached_ns, e.end_ns());
  }
  std::optional<int32_t> best;
  for (const auto& [device, progress] : devices)
    if (!best || progress.busy_ns > devices[*best].busy_ns) best = device;
  return best;
}

}  // namespace epilogue::trace
