// SPDX-License-Identifier: Apache-2.0
// Who waits: streams for each other, and the host for the device.
#include <algorithm>

#include "explain/path/path_builder.h"

namespace epilogue::trace {
namespace {

// A stream begins at most so long after the end of what it waited for on another.
constexpr int64_t kStreamWaitNs = 20'000;

bool is_stream_wait_name(std::string_view name) {
  return name.find("StreamWaitEvent") != std::string_view::npos;
}

}  // namespace

// Of a stream's work, by start, the last that was launched before a moment.
const PathBuilder::Work* PathBuilder::last_launched(const std::vector<Work>& stream,
                                                    int64_t before_ns) {
  const auto next = std::partition_point(stream.begin(), stream.end(),
                                         [&](const Work& w) { return w.launch_ns < before_ns; });
  return next == stream.begin() ? nullptr : &*std::prev(next);
}

void PathBuilder::add_stream_waits() {
  bool are_recorded = false;
  for (const auto& [correlation, i] : syncs_) {
    const Event& sync = trace_.events[i];
    if (sync.args >= trace_.syncs.size()) continue;
    const SyncArgs& args = trace_.syncs[sync.args];
    const auto call = call_times_.find(correlation);
    const auto record = call_times_.find(args.wait_on_record);
    if (call == call_times_.end() || record == call_times_.end()) continue;
    if (args.stream < 0 || args.wait_on_stream < 0 || args.stream == args.wait_on_stream) continue;
    are_recorded = true;
    const auto waiting = streams_.find({sync.pid, args.stream});
    const auto awaited = streams_.find({sync.pid, args.wait_on_stream});
    if (waiting == streams_.end() || awaited == streams_.end()) continue;
    const std::vector<Work>& list = waiting->second;
    const auto next = std::partition_point(
        list.begin(), list.end(), [&](const Work& w) { return w.launch_ns < call->second; });
    const Work* last = last_launched(awaited->second, record->second);
    if (next == list.end() || last == nullptr) continue;
    if (graph_.time_ns(last->end) > graph_.time_ns(next->start) + kPathClockErrorNs) continue;
    graph_.add_edge(last->end, next->start, device_gap_ns_, PathKind::device_gap);
    ++stream_waits_;
  }
  infer_stream_waits(are_recorded);
}

// The calls say that some stream waits, not which one for which: what was launched next waits for
// the work of another stream that ended shortly before it began, if nothing else explains that. So
// it is with a graph: its kernels have a stream of their own in the trace, but wait for what its
// stream was given before, and what follows there waits for them.
void PathBuilder::infer_stream_waits(bool are_recorded) {
  std::map<LaneKey, std::vector<int64_t>> waits;  // by thread
  for (const Event& e : trace_.events) {
    if (!is_launch_category(e.category)) continue;
    if (is_graph_launch_name(trace_.name(e))) {
      std::vector<int64_t>& times = waits[{e.pid, e.tid}];
      times.push_back(e.ts_ns - 1);
      times.push_back(e.ts_ns + 1);
    } else if (!are_recorded && is_stream_wait_name(trace_.name(e))) {
      waits[{e.pid, e.tid}].push_back(e.ts_ns);
    }
  }
  for (auto& [thread, times] : waits) std::sort(times.begin(), times.end());
  if (waits.empty()) return;
  for (const auto& [stream, list] : streams_) {
    for (size_t at = 0; at < list.size(); ++at) {
      const uint32_t call = links_.launch[list[at].event];
      if (call == kNone) continue;
      const Event& launch = trace_.events[call];
      const auto found = waits.find({launch.pid, launch.tid});
      if (found == waits.end()) continue;
      const auto next = std::lower_bound(found->second.begin(), found->second.end(), launch.ts_ns);
      if (next == found->second.begin()) continue;
      const int64_t wait_ns = *std::prev(next);
      if (at > 0 && list[at - 1].launch_ns > wait_ns) continue;  // that one waited
      infer_stream_wait(stream, list, at, wait_ns);
    }
  }
}

void PathBuilder::infer_stream_wait(const LaneKey& stream, const std::vector<Work>& list, size_t at,
                                    int64_t wait_ns) {
  const int64_t start_ns = graph_.time_ns(list[at].start);
  int64_t explained_ns = list[at].launch_ns + launch_latency_ns_;
  if (at > 0) explained_ns = std::max(explained_ns, graph_.time_ns(list[at - 1].end));
  const Work* awaited = nullptr;
  for (const auto& [other, works] : streams_) {
    if (other == stream || other.first != stream.first) continue;
    const Work* last = last_launched(works, wait_ns);
    if (last == nullptr) continue;
    const int64_t end_ns = graph_.time_ns(last->end);
    if (end_ns <= explained_ns || end_ns > start_ns || start_ns - end_ns > kStreamWaitNs) continue;
    if (awaited == nullptr || end_ns > graph_.time_ns(awaited->end)) awaited = last;
  }
  if (awaited == nullptr) return;
  graph_.add_edge(awaited->end, list[at].start, device_gap_ns_, PathKind::device_gap);
  ++stream_waits_;
  ++inferred_waits_;
}

// --- Waits of the host --------------------------------------------------------------------------

// A call that waits ends some time after it began and after the work ended, whichever is later.
void PathBuilder::add_sync_calls() {
  for (const Call& call : calls_) {
    if (!is_wait(call.event)) continue;
    const Event& e = trace_.events[call.event];
    const int64_t end_ns = graph_.time_ns(call.end);
    const int64_t start_ns = graph_.time_ns(call.start);
    const Work* work = awaited_by(call.event);
    int64_t rest_ns = end_ns - start_ns;
    if (work != nullptr) rest_ns = std::min(rest_ns, end_ns - graph_.time_ns(work->end));
    graph_.add_edge(call.start, call.end, std::max<int64_t>(rest_ns, 0), PathKind::sync_call,
                    e.name);
    if (work != nullptr) graph_.add_edge(work->end, call.end, rest_ns, PathKind::sync_call, e.name);
  }
}

// What such a call waited for; null if that had nothing to do, or is not known.
const PathBuilder::Work* PathBuilder::awaited_by(uint32_t event) const {
  const Event& call = trace_.events[event];
  const int64_t latest_ns = call.end_ns() + kPathClockErrorNs;
  const std::string_view name = trace_.name(call);
  const bool is_event = name.find("EventSynchronize") != std::string_view::npos;
  int64_t launched_ns = call.ts_ns;
  int64_t stream = -1;
  if (const auto copy = copies_of_.find(event); copy != copies_of_.end()) {
    const Event& e = trace_.events[copy->second];
    launched_ns = call.ts_ns + 1;
    stream = e.tid;
  } else if (const auto sync = syncs_.find(call.correlation);
             call.correlation != 0 && sync != syncs_.end() &&
             trace_.events[sync->second].args < trace_.syncs.size()) {
    const SyncArgs& args = trace_.syncs[trace_.events[sync->second].args];
    stream = is_event ? args.wait_on_stream : args.stream;
    const auto record = call_times_.find(args.wait_on_record);
    if (is_event && record != call_times_.end()) launched_ns = record->second;
  }
  const Work* awaited = nullptr;
  for (const auto& [lane, list] : streams_) {
    if (stream >= 0 && lane.second != stream) continue;
    const Work* last = last_launched(list, launched_ns);
    // An event may lie before the stream's last work; a stream that went on was not waited for.
    while (is_event && last != nullptr && graph_.time_ns(last->end) > latest_ns)
      last = last == list.data() ? nullptr : last - 1;
    if (last == nullptr || graph_.time_ns(last->end) > latest_ns) continue;
    if (awaited == nullptr || graph_.time_ns(last->end) > graph_.time_ns(awaited->end))
      awaited = last;
  }
  return awaited;
}

}  // namespace epilogue::trace
