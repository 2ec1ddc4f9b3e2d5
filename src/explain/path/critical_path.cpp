// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/critical_path.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "epilogue/trace/time.h"
#include "explain/index/by_name.h"
#include "explain/index/sort_runs.h"
#include "explain/path/path_graph.h"

namespace epilogue::trace {
namespace {

// Clocks of host and device agree to this.
constexpr int64_t kPathClockErrorNs = 2'000;

// Makes the graph of a run: who had to wait for whom.
class PathBuilder {
 public:
  PathBuilder(const Trace& trace, const Links& links) : trace_(trace), links_(links) {}

  // Without moments if no work was started on a device.
  PathGraph build();
  int64_t stream_waits() const { return stream_waits_; }
  int64_t inferred_waits() const { return inferred_waits_; }

 private:
  using LaneKey = std::pair<int32_t, int64_t>;  // pid and tid of a thread, device and stream
  struct Work {
    uint32_t event = 0;
    // When the call began. Unknown: as the work before it on the stream, else long ago.
    int64_t launch_ns = INT64_MIN / 2;
    uint32_t start = kNone;  // moments
    uint32_t end = kNone;
  };
  struct Call {
    uint32_t event = 0;
    uint32_t start = kNone;  // moments
    uint32_t end = kNone;
  };
  // Where no op or call of the thread runs for long.
  struct Pause {
    LaneKey thread;
    uint32_t before = kNone;  // kNone: the thread begins
    uint32_t after = kNone;
  };

  void release();
  void find_syncs();
  void find_threads();
  void find_work();
  void estimate_latencies();

  // Traces of 2021 record steps as ops; these do not count.
  bool is_outermost(uint32_t op) const {
    const uint32_t parent = links_.parent[op];
    return parent == kNone || is_step_op_[trace_.events[parent].name];
  }

  void add_threads();
  void add_thread(const LaneKey& thread, std::vector<uint32_t> spans);
  const Call* call_of(uint32_t event) const;
  void add_host_edge(uint32_t from, uint32_t to, uint32_t span);
  void add_pauses();
  void add_work();
  void add_work_edges(const std::vector<Work>& stream, size_t at);
  void add_stream_waits();
  void infer_stream_waits(bool are_recorded);
  void infer_stream_wait(const LaneKey& stream, const std::vector<Work>& list, size_t at,
                         int64_t wait_ns);
  void add_sync_calls();
  bool is_wait(uint32_t call) const;
  const Work* awaited_by(uint32_t call) const;
  static const Work* last_launched(const std::vector<Work>& stream, int64_t before_ns);

  const Trace& trace_;
  const Links& links_;
  PathGraph graph_;
  std::vector<bool> starts_work_;                       // by event
  std::vector<bool> is_step_op_;                        // by StringId
  std::vector<bool> waits_for_device_;                  // by StringId
  std::map<LaneKey, std::vector<uint32_t>> threads_;    // ops and calls, by start
  std::map<LaneKey, std::vector<Work>> streams_;        // by start
  std::vector<Call> calls_;                             // by event
  std::unordered_map<uint32_t, uint32_t> copies_of_;    // by call: the copy that it waits for
  std::unordered_map<int64_t, uint32_t> syncs_;         // cuda_sync events by correlation
  std::unordered_map<int64_t, int64_t> call_times_;     // of syncs_: start by correlation
  std::map<LaneKey, std::vector<uint32_t>> idle_from_;  // moments in which a thread is done
  std::vector<Pause> pauses_;
  int64_t launch_latency_ns_ = 0;
  int64_t device_gap_ns_ = 0;
  int64_t stream_waits_ = 0;
  int64_t inferred_waits_ = 0;
};

// A thread that does nothing for so long may have waited for another thread (the backward pass).
constexpr int64_t kHandOverNs = 20'000;

bool is_step_op(std::string_view name) { return name.starts_with("ProfilerStep#"); }
// Freeing memory waits for the whole device.
bool waits_for_device(std::string_view name) {
  return is_sync_call_name(name) || name == "cudaFree" || name == "hipFree";
}

// The lower quartile: some of them waited for what cannot be seen. 0 if there are none.
int64_t typical(std::vector<int64_t>& values) {
  if (values.empty()) return 0;
  const auto quarter = values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 4);
  std::nth_element(values.begin(), quarter, values.end());
  return *quarter;
}

PathGraph PathBuilder::build() {
  find_syncs();
  find_threads();
  find_work();
  if (threads_.empty() || streams_.empty()) return {};
  estimate_latencies();
  add_threads();
  add_pauses();
  add_work();
  add_stream_waits();
  add_sync_calls();
  release();
  graph_.finish();
  return std::move(graph_);
}

// Frees what only adding edges needs: finishing a long trace's graph takes memory too.
void PathBuilder::release() {
  std::exchange(streams_, {});
  std::exchange(calls_, {});
  std::exchange(copies_of_, {});
  std::exchange(syncs_, {});
  std::exchange(call_times_, {});
  std::exchange(starts_work_, {});
}

void PathBuilder::find_syncs() {
  std::unordered_set<int64_t> calls;
  for (uint32_t i = 0; i < trace_.events.size(); ++i) {
    const Event& e = trace_.events[i];
    if (e.category != Category::cuda_sync) continue;
    syncs_.emplace(e.correlation, i);
    calls.insert(e.correlation);
    if (e.args < trace_.syncs.size()) calls.insert(trace_.syncs[e.args].wait_on_record);
  }
  if (calls.empty()) return;
  for (const Event& e : trace_.events)
    if (is_launch_category(e.category) && e.correlation != 0 && calls.contains(e.correlation))
      call_times_.emplace(e.correlation, e.ts_ns);
}

void PathBuilder::find_threads() {
  starts_work_.assign(trace_.events.size(), false);
  for (const uint32_t i : links_.device_work) {
    const uint32_t call = links_.launch[i];
    if (call == kNone) continue;
    starts_work_[call] = true;
    const Event& e = trace_.events[call];
    threads_.try_emplace({e.pid, e.tid});
    if (is_blocking_copy(trace_, trace_.events[i], e)) copies_of_.emplace(call, i);
  }
  is_step_op_ = by_name(trace_, is_step_op);
  waits_for_device_ = by_name(trace_, waits_for_device);
  auto thread = threads_.end();  // of the last span: neighbours mostly share it
  for (uint32_t i = 0; i < trace_.events.size(); ++i) {
    const Event& e = trace_.events[i];
    const bool is_call = is_launch_category(e.category);
    const bool is_span =
        is_call ? starts_work_[i] || waits_for_device_[e.name]
                : e.category == Category::cpu_op && is_outermost(i) && !is_step_op_[e.name];
    if (!is_span) continue;
    const LaneKey key = {e.pid, e.tid};
    if (thread == threads_.end() || thread->first != key) thread = threads_.find(key);
    if (thread != threads_.end()) thread->second.push_back(i);
  }
}

void PathBuilder::find_work() {
  for (const uint32_t i : links_.device_work) {
    const Event& e = trace_.events[i];
    if (e.ts_ns == 0 && e.dur_ns == 0) continue;  // the driver lost its time
    std::vector<Work>& stream = streams_[{e.pid, e.tid}];
    Work work{i};
    if (const uint32_t call = links_.launch[i]; call != kNone) {
      work.launch_ns = trace_.events[call].ts_ns;
    } else if (!stream.empty()) {
      work.launch_ns = stream.back().launch_ns;
    }
    stream.push_back(work);
  }
}

// From kernels that waited for the launch alone, or for the kernel before alone.
void PathBuilder::estimate_latencies() {
  std::vector<int64_t> latencies;
  std::vector<int64_t> gaps;
  for (const auto& [stream, list] : streams_) {
    for (size_t at = 0; at < list.size(); ++at) {
      const Event& e = trace_.events[list[at].event];
      const uint32_t call = links_.launch[list[at].event];
      if (call == kNone) continue;
      const int64_t before_ns = at == 0 ? INT64_MIN : trace_.events[list[at - 1].event].end_ns();
      if (before_ns <= trace_.events[call].ts_ns && e.ts_ns >= trace_.events[call].ts_ns)
        latencies.push_back(e.ts_ns - trace_.events[call].ts_ns);
      if (before_ns >= trace_.events[call].end_ns() + 5 * kPathClockErrorNs && before_ns <= e.ts_ns)
        gaps.push_back(e.ts_ns - before_ns);
    }
  }
  launch_latency_ns_ = typical(latencies);
  device_gap_ns_ = typical(gaps);
}

// --- Host ---------------------------------------------------------------------------------------

void PathBuilder::add_threads() {
  size_t spans = 0;
  size_t works = 0;
  for (const auto& [thread, list] : threads_) spans += list.size();
  for (const auto& [stream, list] : streams_) works += list.size();
  // At least as many edges as there will be: what is not used is never touched, but growing holds
  // both copies.
  graph_.reserve(2 * (spans + works), 3 * spans + 4 * works);
  for (auto& [thread, list] : threads_) add_thread(thread, std::move(list));
  threads_.clear();
  sort_runs(calls_, [](const Call& a, const Call& b) { return a.event < b.event; });
}

// Null if the call is not on a thread of the graph.
const PathBuilder::Call* PathBuilder::call_of(uint32_t event) const {
  const auto found =
      std::lower_bound(calls_.begin(), calls_.end(), event,
                       [](const Call& c, uint32_t wanted) { return c.event < wanted; });
  return found != calls_.end() && found->event == event ? &*found : nullptr;
}

void PathBuilder::add_thread(const LaneKey& thread, std::vector<uint32_t> spans) {
  sort_runs(spans, [&](uint32_t a, uint32_t b) {
    const Event& x = trace_.events[a];
    const Event& y = trace_.events[b];
    if (x.ts_ns != y.ts_ns) return x.ts_ns < y.ts_ns;
    if (x.dur_ns != y.dur_ns) return x.dur_ns > y.dur_ns;
    const bool is_op = x.category == Category::cpu_op;
    return is_op != (y.category == Category::cpu_op) ? is_op : a < b;
  });
  std::vector<Call> open;
  uint32_t last = kNone;
  const auto step_to = [&](int64_t time_ns) {
    if (last != kNone) time_ns = std::max(time_ns, graph_.time_ns(last));
    const uint32_t moment = graph_.add_moment(time_ns);
    if (!open.empty()) {
      add_host_edge(last, moment, open.back().event);
    } else if (last == kNone || time_ns - graph_.time_ns(last) > kHandOverNs) {
      pauses_.push_back({thread, last, moment});
    } else {
      graph_.add_edge(last, moment, time_ns - graph_.time_ns(last), PathKind::host_between_ops);
    }
    last = moment;
  };
  const auto close = [&] {
    Call& span = open.back();
    const Event& e = trace_.events[span.event];
    step_to(e.end_ns());
    span.end = last;
    if (is_launch_category(e.category)) calls_.push_back(span);
    open.pop_back();
    if (open.empty()) idle_from_[thread].push_back(last);
  };
  for (const uint32_t i : spans) {
    const Event& e = trace_.events[i];
    while (!open.empty() && trace_.events[open.back().event].end_ns() <= e.ts_ns) close();
    step_to(e.ts_ns);
    open.push_back({i, last, kNone});
  }
  while (!open.empty()) close();
}

void PathBuilder::add_host_edge(uint32_t from, uint32_t to, uint32_t span) {
  const Event& e = trace_.events[span];
  const int64_t distance_ns = graph_.time_ns(to) - graph_.time_ns(from);
  if (!is_launch_category(e.category)) {
    graph_.add_edge(from, to, distance_ns, PathKind::host_op, e.name);
  } else if (!is_wait(span)) {  // of waits: add_sync_calls()
    graph_.add_edge(from, to, distance_ns, PathKind::launch_call, e.name);
  }
}

bool PathBuilder::is_wait(uint32_t call) const {
  return waits_for_device_[trace_.events[call].name] || copies_of_.contains(call);
}

// After a long pause, and at its first op, a thread goes on because of what another one finished in
// the meantime, if one did.
void PathBuilder::add_pauses() {
  const std::vector<Pause> pauses = std::exchange(pauses_, {});
  for (const Pause& pause : pauses) {
    const int64_t end_ns = graph_.time_ns(pause.after);
    const int64_t start_ns = pause.before == kNone ? INT64_MIN : graph_.time_ns(pause.before);
    uint32_t other = kNone;
    for (const auto& [thread, moments] : idle_from_) {
      if (thread == pause.thread) continue;
      const auto next =
          std::upper_bound(moments.begin(), moments.end(), end_ns,
                           [&](int64_t t, uint32_t m) { return t < graph_.time_ns(m); });
      if (next == moments.begin()) continue;
      const uint32_t found = *std::prev(next);
      if (graph_.time_ns(found) <= start_ns) continue;
      if (other == kNone || graph_.time_ns(found) > graph_.time_ns(other)) other = found;
    }
    if (other != kNone)
      graph_.add_edge(other, pause.after, end_ns - graph_.time_ns(other),
                      PathKind::host_between_ops);
    if (pause.before != kNone)
      graph_.add_edge(pause.before, pause.after, other == kNone ? end_ns - start_ns : 0,
                      PathKind::host_between_ops);
  }
}

// --- Device -------------------------------------------------------------------------------------

void PathBuilder::add_work() {
  for (auto& [stream, list] : streams_) {
    for (Work& work : list) {
      const Event& e = trace_.events[work.event];
      work.start = graph_.add_moment(e.ts_ns);
      work.end = graph_.add_moment(e.end_ns());
    }
    for (size_t at = 0; at < list.size(); ++at) add_work_edges(list, at);
  }
}

void PathBuilder::add_work_edges(const std::vector<Work>& stream, size_t at) {
  const Work& work = stream[at];
  const Event& e = trace_.events[work.event];
  const bool is_copy = e.category == Category::gpu_memcpy;
  graph_.add_edge(work.start, work.end, e.dur_ns, is_copy ? PathKind::copy : PathKind::kernel,
                  e.name);
  const uint32_t call = links_.launch[work.event];
  if (const Call* found = call != kNone ? call_of(call) : nullptr;
      found != nullptr && trace_.events[call].ts_ns <= e.ts_ns)
    graph_.add_edge(found->start, work.start, launch_latency_ns_, PathKind::launch_latency);
  if (at == 0) return;
  const Work& before = stream[at - 1];
  // Kernels of one stream may overlap (programmatic dependent launch).
  const bool is_after = trace_.events[before.event].end_ns() <= e.ts_ns;
  graph_.add_edge(is_after ? before.end : before.start, work.start, is_after ? device_gap_ns_ : 0,
                  PathKind::device_gap);
}

// Who waits: streams for each other, and the host for the device.

// A stream begins at most so long after the end of what it waited for on another.
constexpr int64_t kStreamWaitNs = 20'000;

bool is_stream_wait_name(std::string_view name) {
  return name.find("StreamWaitEvent") != std::string_view::npos;
}

// The last work of a stream that was launched before a moment. `stream` is by start.
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

// The work that a call waited for; null if there was none, or it is unknown.
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

constexpr std::array<std::string_view, kPathKinds> kPathKindNames = {
    "kernel",           "copy",           "host_op",    "launch_call", "sync_call",
    "host_between_ops", "launch_latency", "device_gap", "before"};

// Somebody can make it faster by writing other code.
bool can_be_faster(PathKind kind) {
  return kind == PathKind::kernel || kind == PathKind::copy || kind == PathKind::host_op ||
         kind == PathKind::launch_call || kind == PathKind::host_between_ops;
}

// Calls run(start_ns, end_ns, group) for each part of the path, by time.
template <class Run>
void for_each_part(const PathGraph& graph, const std::vector<uint32_t>& edges,
                   uint32_t before_group, const CriticalPath& path, Run run) {
  // A wait may end before what it waited for, as far as the clocks are apart: nothing counts twice.
  int64_t at_ns = path.start_ns;
  const auto step_to = [&](int64_t end_ns, uint32_t group) {
    if (end_ns > at_ns) run(std::exchange(at_ns, end_ns), end_ns, group);
  };
  const int64_t first_ns =
      edges.empty() ? path.end_ns : graph.time_ns(graph.edge(edges.front()).from);
  step_to(first_ns, before_group);
  for (const uint32_t id : edges) {
    const PathGraph::Edge e = graph.edge(id);
    step_to(graph.time_ns(e.to), e.group);
  }
}

void add_what_ifs(const PathGraph& graph, CriticalPath& path) {
  std::vector<uint32_t> largest;
  for (uint32_t i = 0; i < graph.groups().size(); ++i)
    if (path.groups[i].path_ns > 0 && can_be_faster(path.groups[i].kind)) largest.push_back(i);
  std::stable_sort(largest.begin(), largest.end(), [&](uint32_t a, uint32_t b) {
    return path.groups[a].path_ns > path.groups[b].path_ns;
  });
  largest.resize(std::min(largest.size(), kWhatIfGroups));
  for (const uint32_t i : largest) {
    const PathGraph::Ends ends = graph.ends_if_faster(i);
    path.groups[i].if_half_ns = ends.if_half_ns - path.start_ns;
    path.groups[i].if_none_ns = ends.if_none_ns - path.start_ns;
  }
}

// The largest first, without those that are not on the path.
void sort_groups(CriticalPath& path) {
  std::vector<uint32_t> order(path.groups.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return path.groups[a].path_ns > path.groups[b].path_ns;
  });
  std::vector<uint32_t> place(order.size());
  std::vector<PathGroup> groups;
  for (uint32_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    if (path.groups[order[i]].count > 0) groups.push_back(std::move(path.groups[order[i]]));
  }
  path.groups = std::move(groups);
  for (PathPiece& piece : path.pieces) piece.group = place[piece.group];
}

}  // namespace

std::string_view path_kind_name(PathKind kind) { return kPathKindNames[static_cast<size_t>(kind)]; }

std::optional<CriticalPath> critical_path(const Trace& trace, const Links& links) {
  if (links.device_work.empty() || is_synchronous_device(trace)) return std::nullopt;
  PathBuilder builder(trace, links);
  const PathGraph graph = builder.build();
  if (graph.moments() == 0) return std::nullopt;

  CriticalPath path;
  path.stream_waits = builder.stream_waits();
  path.inferred_waits = builder.inferred_waits();
  path.start_ns = path.end_ns = graph.time_ns(0);
  for (uint32_t i = 0; i < graph.moments(); ++i) {
    path.start_ns = std::min(path.start_ns, graph.time_ns(i));
    path.end_ns = std::max(path.end_ns, graph.time_ns(i));
  }
  for (const PathGraph::Group& g : graph.groups())
    path.groups.push_back({g.kind, std::string(trace.strings[g.name]), 0, 0, 0, {}, {}});
  const auto before_group = static_cast<uint32_t>(path.groups.size());
  path.groups.push_back({PathKind::before, "", 0, 0, 0, {}, {}});
  graph.for_each_edge([&](const PathGraph::Edge& e) {
    path.groups[e.group].total_ns += std::max<int64_t>(e.weight_ns, 0);
  });

  const std::vector<uint32_t> edges = graph.longest_path();
  size_t pieces = 0;
  uint32_t last = kNone;
  for_each_part(graph, edges, before_group, path,
                [&](int64_t start_ns, int64_t end_ns, uint32_t group) {
                  PathGroup& g = path.groups[group];
                  ++g.count;
                  g.path_ns += end_ns - start_ns;
                  path.kind_ns[static_cast<size_t>(g.kind)] += end_ns - start_ns;
                  if (std::exchange(last, group) != group) ++pieces;
                });
  path.groups[before_group].total_ns = path.groups[before_group].path_ns;
  add_what_ifs(graph, path);
  // Last: of a long trace they are as large as what the above takes for a while.
  path.pieces.reserve(pieces);
  for_each_part(graph, edges, before_group, path,
                [&](int64_t start_ns, int64_t end_ns, uint32_t group) {
                  if (!path.pieces.empty() && path.pieces.back().group == group) {
                    path.pieces.back().end_ns = end_ns;
                  } else {
                    path.pieces.push_back({start_ns, end_ns, group});
                  }
                });
  sort_groups(path);
  return path;
}

}  // namespace epilogue::trace
