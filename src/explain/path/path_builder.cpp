// SPDX-License-Identifier: Apache-2.0
#include "explain/path/path_builder.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "epilogue/trace/time.h"

namespace epilogue::trace {
namespace {

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

}  // namespace

PathBuilder::PathBuilder(const Trace& trace, const Links& links) : trace_(trace), links_(links) {}

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

// What only the making of edges needs: finishing a long trace's graph takes memory too.
void PathBuilder::release() {
  std::exchange(streams_, {});
  std::exchange(calls_, {});
  std::exchange(copies_of_, {});
  std::exchange(syncs_, {});
  std::exchange(call_times_, {});
  std::exchange(starts_work_, {});
}

// Traces of 2021 record steps as ops: what stands around everything says nothing.
uint32_t PathBuilder::outermost_op(uint32_t op) const {
  while (links_.parent[op] != kNone && !is_step_op(trace_.name(trace_.events[links_.parent[op]])))
    op = links_.parent[op];
  return op;
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
  for (uint32_t i = 0; i < trace_.events.size(); ++i) {
    const Event& e = trace_.events[i];
    const bool is_call = is_launch_category(e.category);
    const bool is_span = is_call ? starts_work_[i] || waits_for_device(trace_.name(e))
                                 : e.category == Category::cpu_op && outermost_op(i) == i &&
                                       !is_step_op(trace_.name(e));
    if (!is_span) continue;
    if (const auto thread = threads_.find({e.pid, e.tid}); thread != threads_.end())
      thread->second.push_back(i);
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

// Of kernels that only one of both can have kept waiting.
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
  std::sort(calls_.begin(), calls_.end(),
            [](const Call& a, const Call& b) { return a.event < b.event; });
}

// Null if the call is not on a thread of the graph.
const PathBuilder::Call* PathBuilder::call_of(uint32_t event) const {
  const auto found =
      std::lower_bound(calls_.begin(), calls_.end(), event,
                       [](const Call& c, uint32_t wanted) { return c.event < wanted; });
  return found != calls_.end() && found->event == event ? &*found : nullptr;
}

void PathBuilder::add_thread(const LaneKey& thread, std::vector<uint32_t> spans) {
  std::sort(spans.begin(), spans.end(), [&](uint32_t a, uint32_t b) {
    const Event& x = trace_.events[a];
    const Event& y = trace_.events[b];
    if (x.ts_ns != y.ts_ns) return x.ts_ns < y.ts_ns;
    if (x.dur_ns != y.dur_ns) return x.dur_ns > y.dur_ns;
    return (x.category == Category::cpu_op) > (y.category == Category::cpu_op);
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
  return copies_of_.contains(call) || waits_for_device(trace_.name(trace_.events[call]));
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

}  // namespace epilogue::trace
