// SPDX-License-Identifier: Apache-2.0
#include "explain/render/html/timeline_rows.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "trace/nesting.h"

namespace epilogue::trace {
namespace {

// A pile of events that overlap without nesting (a broken clock) must not make a lane endless.
constexpr size_t kMaxRows = 64;

using LaneKey = std::tuple<LaneKind, int64_t, int64_t>;  // with pid, tid

LaneKind lane_kind(Category category) {
  if (category == Category::python_function) return LaneKind::python;
  return is_device_category(category) ? LaneKind::device : LaneKind::host;
}

bool is_drawn(const Event& event) {
  switch (event.category) {
    case Category::cpu_op:
    case Category::user_annotation:
    case Category::cuda_runtime:
    case Category::cuda_driver:
    case Category::python_function:
    case Category::overhead:
    case Category::cpu_kernel_share: return true;
    case Category::kernel:
    case Category::gpu_memcpy:
    case Category::gpu_memset:
    case Category::gpu_user_annotation:
      // Both 0: the driver lost the times.
      return event.ts_ns != 0 || event.dur_ns != 0;
    default: return false;
  }
}

// The `limit` longest of the events, in their order.
std::vector<uint32_t> longest(const Trace& trace, std::vector<uint32_t> events, size_t limit) {
  if (events.size() <= limit) return events;
  std::vector<int64_t> durations;
  durations.reserve(events.size());
  for (const uint32_t i : events) durations.push_back(trace.events[i].dur_ns);
  const auto cut = durations.begin() + static_cast<ptrdiff_t>(limit);
  std::nth_element(durations.begin(), cut, durations.end(), std::greater<>());
  const int64_t threshold_ns = *cut;
  const auto longer = static_cast<size_t>(
      std::count_if(durations.begin(), cut, [&](int64_t d) { return d > threshold_ns; }));
  size_t equal_left = limit - longer;
  std::erase_if(events, [&](uint32_t i) {
    const int64_t dur_ns = trace.events[i].dur_ns;
    if (dur_ns != threshold_ns) return dur_ns < threshold_ns;
    if (equal_left == 0) return true;
    --equal_left;
    return false;
  });
  return events;
}

std::string trimmed(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

// The names of processes and threads, looked up once per lane: a trace may have 100,000 of them.
class LaneNames {
 public:
  explicit LaneNames(const Trace& trace) {
    for (const Process& p : trace.processes) {
      if (!p.labels.empty()) labels_[p.pid] = p.labels;
      if (!p.name.empty()) processes_[p.pid] = p.name;
    }
    for (const Thread& t : trace.threads)
      if (!t.name.empty()) threads_[{t.pid, t.tid}] = t.name;
  }

  // "GPU 0, stream 7", "python, thread 4711 (python)", "python, thread 4711 (python), Python"
  std::string of(const TimelineLane& lane) const {
    const bool is_device = lane.kind == LaneKind::device;
    const auto& known = is_device ? labels_ : processes_;
    const auto process = known.find(lane.pid);
    const auto thread = threads_.find({lane.pid, lane.tid});
    return trimmed(process != known.end()
                       ? std::string(process->second)
                       : (is_device ? "device " : "process ") + std::to_string(lane.pid)) +
           ", " +
           trimmed(thread != threads_.end()
                       ? std::string(thread->second)
                       : (is_device ? "stream " : "thread ") + std::to_string(lane.tid)) +
           (lane.kind == LaneKind::python ? ", Python" : "");
  }

 private:
  // Views of the trace's texts.
  std::map<int64_t, std::string_view> labels_;
  std::map<int64_t, std::string_view> processes_;
  std::map<std::pair<int64_t, int64_t>, std::string_view> threads_;
};

size_t events_of(const TimelineLane& lane) {
  size_t events = 0;
  for (const auto& row : lane.rows) events += row.size();
  return events;
}

// Puts events, given by start, on the rows of their lanes.
class RowFiller {
 public:
  explicit RowFiller(const Trace& trace) : trace_(trace) {}

  void add(uint32_t i) {
    const Event& event = trace_.events[i];
    Open& open = lanes_[{lane_kind(event.category), event.pid, event.tid}];
    while (!open.ends_ns.empty() && open.ends_ns.back() <= event.ts_ns) open.ends_ns.pop_back();
    const size_t row = std::min(open.ends_ns.size(), kMaxRows - 1);
    if (open.ends_ns.size() < kMaxRows) {
      open.ends_ns.push_back(event.end_ns());
    } else {
      open.ends_ns.back() = std::max(open.ends_ns.back(), event.end_ns());
    }
    if (row == open.rows.size()) open.rows.emplace_back();
    open.rows[row].push_back(i);
  }

  std::vector<TimelineLane> lanes() && {
    const LaneNames names(trace_);
    std::vector<TimelineLane> list;
    for (auto& [key, open] : lanes_) {
      TimelineLane lane;
      std::tie(lane.kind, lane.pid, lane.tid) = key;
      lane.rows = std::move(open.rows);
      lane.name = names.of(lane);
      list.push_back(std::move(lane));
    }
    return list;
  }

 private:
  struct Open {
    std::vector<int64_t> ends_ns;  // of the spans that are open, outermost first
    std::vector<std::vector<uint32_t>> rows;
  };
  const Trace& trace_;
  std::map<LaneKey, Open> lanes_;
};

// Host threads first, then devices, then Python; the fullest of a kind first, devices by number.
void sort_lanes(std::vector<TimelineLane>& lanes) {
  std::stable_sort(lanes.begin(), lanes.end(), [](const TimelineLane& a, const TimelineLane& b) {
    if (a.kind != b.kind) return a.kind < b.kind;
    return a.kind != LaneKind::device && events_of(a) > events_of(b);
  });
}

}  // namespace

TimelineRows timeline_rows(const Trace& trace, size_t max_events) {
  std::vector<uint32_t> drawn = event_order(trace);
  std::erase_if(drawn, [&](uint32_t i) { return !is_drawn(trace.events[i]); });
  const size_t all = drawn.size();
  drawn = longest(trace, std::move(drawn), max_events);

  TimelineRows result;
  result.left_out = static_cast<int64_t>(all - drawn.size());
  RowFiller filler(trace);
  for (const uint32_t i : drawn) filler.add(i);
  result.lanes = std::move(filler).lanes();
  sort_lanes(result.lanes);
  return result;
}

}  // namespace epilogue::trace
