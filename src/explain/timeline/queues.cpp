// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/queues.h"

#include <algorithm>
#include <map>
#include <utility>

#include "epilogue/trace/time.h"
#include "explain/index/device_busy.h"

namespace epilogue::trace {
namespace {

using StreamKey = std::pair<int32_t, int64_t>;

// `changes`: moment and by how much.
StreamQueue queue_of(std::vector<std::pair<int64_t, int64_t>> changes) {
  std::sort(changes.begin(), changes.end());
  StreamQueue queue;
  int64_t length = 0;
  double area = 0;
  for (size_t at = 0; at < changes.size();) {
    const int64_t ts_ns = changes[at].first;
    if (!queue.points.empty())
      area += static_cast<double>(length) * static_cast<double>(ts_ns - queue.points.back().ts_ns);
    for (; at < changes.size() && changes[at].first == ts_ns; ++at) length += changes[at].second;
    queue.points.push_back({ts_ns, length});
    if (length <= queue.max_length) continue;
    queue.max_length = length;
    queue.max_ns = ts_ns;
  }
  if (queue.points.size() > 1)
    queue.mean_length =
        area / static_cast<double>(queue.points.back().ts_ns - queue.points.front().ts_ns);
  return queue;
}

}  // namespace

std::vector<StreamQueue> stream_queues(const Trace& trace, const Links& links) {
  std::vector<StreamQueue> list;
  if (is_synchronous_device(trace)) return list;
  std::map<StreamKey, std::vector<std::pair<int64_t, int64_t>>> changes;
  std::map<StreamKey, int64_t> works;
  for (const uint32_t i : links.device_work) {
    const Event& e = trace.events[i];
    if (links.launch[i] == kNone) continue;
    ++works[{e.pid, e.tid}];
    const int64_t launched_ns = trace.events[links.launch[i]].end_ns();
    if (launched_ns >= e.ts_ns) continue;  // it did not wait
    changes[{e.pid, e.tid}].emplace_back(launched_ns, 1);
    changes[{e.pid, e.tid}].emplace_back(e.ts_ns, -1);
  }
  for (const auto& [stream, count] : works) {
    StreamQueue queue = queue_of(std::move(changes[stream]));
    queue.device = stream.first;
    queue.stream = stream.second;
    queue.works = count;
    list.push_back(std::move(queue));
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const StreamQueue& a, const StreamQueue& b) { return a.works > b.works; });
  return list;
}

std::vector<DeviceRange> device_ranges(const Trace& trace, const Links& links) {
  std::map<std::pair<int32_t, StringId>, std::vector<Interval>> ranges;
  for (const Event& e : trace.events)
    if (e.category == Category::gpu_user_annotation && e.dur_ns > 0)
      ranges[{e.pid, e.name}].push_back({e.ts_ns, e.end_ns()});
  std::map<int32_t, IntervalSet> busy;
  std::vector<DeviceRange> list;
  for (auto& [key, intervals] : ranges) {
    const auto device = busy.find(key.first);
    const IntervalSet& work =
        device != busy.end()
            ? device->second
            : busy.emplace(key.first, device_busy(trace, links, key.first)).first->second;
    DeviceRange range;
    range.name = std::string(trace.strings[key.second]);
    range.device = key.first;
    range.count = static_cast<int64_t>(intervals.size());
    for (const Interval& i : intervals) {
      range.total_ns += i.length_ns();
      range.max_ns = std::max(range.max_ns, i.length_ns());
    }
    const IntervalSet whole = united(std::move(intervals));
    range.busy_ns = total_ns(intersected(whole, work));
    range.idle_ns = total_ns(whole) - range.busy_ns;
    list.push_back(std::move(range));
  }
  std::stable_sort(list.begin(), list.end(), [](const DeviceRange& a, const DeviceRange& b) {
    return a.total_ns > b.total_ns;
  });
  return list;
}

}  // namespace epilogue::trace
