// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/time.h"

#include <algorithm>
#include <map>

#include "explain/index/device_busy.h"

namespace epilogue::trace {
namespace {

bool is_without_time(const Event& event) { return event.ts_ns == 0 && event.dur_ns == 0; }

// The work of one device, stream by stream.
struct Lanes {
  std::map<int64_t, std::vector<Interval>> by_stream;
  std::vector<Interval> kernels;
  DeviceUse use;
};

DeviceUse summed(Lanes lanes) {
  std::vector<Interval> all;
  for (auto& [stream, work] : lanes.by_stream) {
    const auto events = static_cast<int64_t>(work.size());
    const IntervalSet busy = united(std::move(work));
    all.insert(all.end(), busy.begin(), busy.end());
    lanes.use.streams.push_back({stream, events, total_ns(busy)});
  }
  lanes.use.busy_ns = total_ns(united(std::move(all)));
  lanes.use.kernel_ns = total_ns(united(std::move(lanes.kernels)));
  return std::move(lanes.use);
}

// A selection spans its window, but no more than the whole trace does.
void set_span(const Trace& trace, Timeline& time) {
  for_each_event_around(trace, [&](const Event& event) {
    if (!counts_for_span(event)) return;
    time.start_ns = std::min(time.start_ns.value_or(event.ts_ns), event.ts_ns);
    time.end_ns = std::max(time.end_ns.value_or(event.end_ns()), event.end_ns());
  });
  if (!time.start_ns || !trace.selection) return;
  const Interval window = shown_window(trace);
  time.start_ns = std::max(*time.start_ns, window.begin_ns);
  time.end_ns = std::max(*time.start_ns, std::min(*time.end_ns, window.end_ns));
}

}  // namespace

bool counts_for_span(const Event& event) {
  switch (event.category) {
    case Category::cpu_op:
    case Category::user_annotation:
    case Category::gpu_user_annotation:
    case Category::cuda_runtime:
    case Category::cuda_driver: return true;
    case Category::kernel:
    case Category::gpu_memcpy:
    case Category::gpu_memset: return !is_without_time(event);
    default: return false;
  }
}

std::optional<double> Timeline::busy_pct() const {
  if (devices.empty() || span_ns() <= 0) return std::nullopt;
  return static_cast<double>(devices.front().busy_ns) / static_cast<double>(span_ns()) * 100;
}

Timeline timeline(const Trace& trace, const Links& links) {
  Timeline result;
  set_span(trace, result);
  const Interval window = shown_window(trace);
  std::map<int32_t, Lanes> devices;
  for (const uint32_t i : links.device_work) {
    const Event& work = trace.events[i];
    Lanes& lanes = devices[work.pid];
    const bool is_first = lanes.use.kernels + lanes.use.copies == 0;
    const bool is_kernel = work.category == Category::kernel;
    ++(is_kernel ? lanes.use.kernels : lanes.use.copies);
    const Interval shown = clipped(work, window);
    lanes.by_stream[work.tid].push_back(shown);
    if (is_kernel) lanes.kernels.push_back(shown);
    lanes.use.first_ns = is_first ? work.ts_ns : std::min(lanes.use.first_ns, work.ts_ns);
    lanes.use.last_ns = is_first ? work.end_ns() : std::max(lanes.use.last_ns, work.end_ns());
  }
  for (auto& [device, lanes] : devices) {
    lanes.use.device = device;
    result.devices.push_back(summed(std::move(lanes)));
  }
  std::stable_sort(result.devices.begin(), result.devices.end(),
                   [](const DeviceUse& a, const DeviceUse& b) { return a.busy_ns > b.busy_ns; });
  return result;
}

}  // namespace epilogue::trace
