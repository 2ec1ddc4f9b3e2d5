// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/time.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <unordered_map>

#include "explain/index/by_name.h"
#include "explain/index/device_busy.h"
#include "explain/timeline/idle_causes.h"

namespace epilogue::trace {
namespace {

constexpr std::array<std::string_view, kIdleCauses> kCauseNames = {
    "queue", "launch", "sync", "data", "profiler", "host_in_ops", "host_between_ops", "other"};

// PyTorch's DataLoader names its annotation "enumerate(DataLoader)#...", users theirs "data_load".
constexpr std::array<std::string_view, 3> kDataMarks = {"DataLoader", "dataloader", "data_load"};

// Overhead of which the profiled program is free without the profiler: not the loading of modules
// and functions.
constexpr std::array<std::string_view, 4> kProfilersWork = {
    "Activity Buffer Request", "Buffer Flush", "Instrumentation", "Resource"};

bool is_data_name(std::string_view name) {
  return std::any_of(kDataMarks.begin(), kDataMarks.end(),
                     [&](std::string_view mark) { return name.find(mark) != name.npos; });
}

bool is_op_or_range(Category category) {
  return category == Category::cpu_op || category == Category::user_annotation;
}

using ThreadKey = std::pair<int32_t, int64_t>;

// The events of a trace and, where it is a selection, those around it: what went on in its window
// often began before. Numbered through: those of the trace first.
class AllEvents {
 public:
  AllEvents(const Trace& trace, const Links& links) : trace_(trace), links_(links) {
    if (!trace.selection) return;
    outside_ = trace.selection->outside;
    for (uint32_t i = 0; i < outside_.size(); ++i)
      if (is_launch_category(outside_[i].category) && outside_[i].correlation != 0)
        outside_calls_.emplace(outside_[i].correlation, first_outside() + i);
  }

  uint32_t size() const { return first_outside() + static_cast<uint32_t>(outside_.size()); }
  const Event& operator[](uint32_t i) const {
    return i < first_outside() ? trace_.events[i] : outside_[i - first_outside()];
  }
  // The call that started a piece of device work.
  uint32_t launch_of(uint32_t work) const {
    if (work < first_outside() && links_.launch[work] != kNone) return links_.launch[work];
    const auto found = outside_calls_.find((*this)[work].correlation);
    return found == outside_calls_.end() ? kNone : found->second;
  }

 private:
  uint32_t first_outside() const { return static_cast<uint32_t>(trace_.events.size()); }

  const Trace& trace_;
  const Links& links_;
  std::span<const Event> outside_;
  std::unordered_map<int64_t, uint32_t> outside_calls_;  // by correlation
};

// Where the host was, as sets that may overlap.
class HostStates {
 public:
  HostStates(const Trace& trace, const Links& links, int32_t device)
      : trace_(trace), events_(trace, links) {
    names_ = by_name(trace, [](std::string_view name) -> NameFlags {
      return {is_sync_call_name(name), is_data_name(name), is_kernel_launch_name(name)};
    });
    find_driving_threads(device);
    for (uint32_t i = 0; i < events_.size(); ++i) add(events_[i], i);
    for (const auto& [thread, range] : ranges_)
      if (driving_.empty() || driving_.contains(thread)) add_to(IdleCause::host_between_ops, range);
  }

  IntervalSet take(IdleCause cause) {
    return united(std::move(states_[static_cast<size_t>(cause)]));
  }

 private:
  struct NameFlags {
    bool is_sync;
    bool is_data;
    bool is_kernel_launch;
  };

  static ThreadKey thread_of(const Event& e) { return {e.pid, e.tid}; }
  // An interval within the one before (an op in its caller) is dropped: a long trace has
  // millions.
  void add_to(IdleCause cause, Interval i) {
    if (i.end_ns <= i.begin_ns) return;
    std::vector<Interval>& list = states_[static_cast<size_t>(cause)];
    if (!list.empty() && list.back().begin_ns <= i.begin_ns && i.begin_ns <= list.back().end_ns) {
      list.back().end_ns = std::max(list.back().end_ns, i.end_ns);
    } else {
      list.push_back(i);
    }
  }

  void find_driving_threads(int32_t device) {
    starts_work_.resize(events_.size());
    blocks_.resize(events_.size());
    for (uint32_t i = 0; i < events_.size(); ++i) {
      const Event& e = events_[i];
      if (is_device_work(e.category)) add_device_work(e, events_.launch_of(i), device);
      if (is_launch_category(e.category) && names_[e.name].is_kernel_launch)
        driving_.insert(thread_of(e));
    }
  }

  // From the end of its launch call to its start, work waits.
  void add_device_work(const Event& work, uint32_t launch, int32_t device) {
    if (launch == kNone) return;
    const Event& call = events_[launch];
    starts_work_[launch] = true;
    driving_.insert(thread_of(call));
    if (is_blocking_copy(trace_, work, call)) blocks_[launch] = true;
    if (work.pid == device) add_to(IdleCause::queue, {call.end_ns(), work.ts_ns});
  }

  void add(const Event& e, uint32_t i) {
    const Interval interval = {e.ts_ns, e.end_ns()};
    if (is_launch_category(e.category)) {
      extend(e);
      if (names_[e.name].is_sync || blocks_[i]) {
        if (driving_.contains(thread_of(e))) add_to(IdleCause::sync, interval);
      } else if (starts_work_[i] || names_[e.name].is_kernel_launch) {
        add_to(IdleCause::launch, interval);
      } else {
        add_to(IdleCause::host_in_ops, interval);
      }
    } else if (is_op_or_range(e.category)) {
      extend(e);
      if (names_[e.name].is_data) add_to(IdleCause::data, interval);
      if (e.category == Category::cpu_op) add_to(IdleCause::host_in_ops, interval);
    } else if (e.category == Category::overhead &&
               std::ranges::find(kProfilersWork, trace_.name(e)) != kProfilersWork.end()) {
      add_to(IdleCause::profiler, interval);
    }
  }

  // From the first to the last event of a thread, its host was at work.
  void extend(const Event& e) {
    if (known_ == nullptr || known_->first != thread_of(e)) {
      const Interval first = {e.ts_ns, e.end_ns()};
      known_ = &*ranges_.try_emplace(thread_of(e), first).first;
    }
    Interval& range = known_->second;
    range.begin_ns = std::min(range.begin_ns, e.ts_ns);
    range.end_ns = std::max(range.end_ns, e.end_ns());
  }

  const Trace& trace_;
  AllEvents events_;
  std::vector<NameFlags> names_;  // by StringId
  std::vector<bool> starts_work_;
  std::vector<bool> blocks_;
  std::set<ThreadKey> driving_;  // threads that start device work
  std::map<ThreadKey, Interval> ranges_;
  std::pair<const ThreadKey, Interval>* known_ = nullptr;  // the thread of the last event
  std::array<std::vector<Interval>, kIdleCauses> states_;
};

}  // namespace

std::string_view idle_cause_name(IdleCause cause) {
  return kCauseNames[static_cast<size_t>(cause)];
}

bool is_sync_call_name(std::string_view name) {
  return name.find("Synchronize") != std::string_view::npos;
}

bool is_data_loading_name(std::string_view name) { return is_data_name(name); }

bool is_data_loading(const Trace& trace, const Event& event) {
  return is_op_or_range(event.category) && is_data_name(trace.name(event));
}

bool is_blocking_copy(const Trace& trace, const Event& work, const Event& call) {
  return work.category == Category::gpu_memcpy && call.end_ns() >= work.end_ns() &&
         !is_graph_launch_name(trace.name(call));
}

IdleCauses idle_causes(const Trace& trace, const Links& links, int32_t device, Interval span) {
  IdleCauses causes;
  causes.busy = intersected(device_busy(trace, links, device), {span});
  IntervalSet rest = gaps(causes.busy, span);
  HostStates host(trace, links, device);
  for (int c = 0; c < static_cast<int>(IdleCause::other); ++c) {
    const IntervalSet state = host.take(static_cast<IdleCause>(c));
    causes.idle[static_cast<size_t>(c)] = intersected(rest, state);
    rest = subtracted(rest, state);
  }
  causes.idle[static_cast<size_t>(IdleCause::other)] = std::move(rest);
  return causes;
}

namespace {

using Stream = std::pair<int32_t, int64_t>;

// Calls by which the host makes a stream wait for an event, by thread and in order.
class EventWaits {
 public:
  explicit EventWaits(const Trace& trace) {
    const std::vector<bool> is_wait = by_name(trace, [](std::string_view name) {
      return name.find("StreamWaitEvent") != std::string_view::npos;
    });
    for_each_event_around(trace, [&](const Event& e) {
      if (is_launch_category(e.category) && is_wait[e.name])
        by_thread_[{e.pid, e.tid}].push_back(e.ts_ns);
    });
    for (auto& [thread, times] : by_thread_) std::sort(times.begin(), times.end());
  }

  // One lies between two moments of the call's thread.
  bool has_between(int64_t after_ns, const Event& call) const {
    const auto of_thread = by_thread_.find({call.pid, call.tid});
    if (of_thread == by_thread_.end()) return false;
    const std::vector<int64_t>& times = of_thread->second;
    const auto first = std::upper_bound(times.begin(), times.end(), after_ns);
    return first != times.end() && *first < call.ts_ns;
  }

 private:
  std::map<ThreadKey, std::vector<int64_t>> by_thread_;
};

// The device's first recorded work; of a selection in the whole trace.
int64_t first_work_ns(const Trace& trace, const Links& links, int32_t device) {
  int64_t first_ns = INT64_MAX;
  const auto consider = [&](const Event& e) {
    if (is_device_work(e.category) && e.pid == device && counts_for_span(e))
      first_ns = std::min(first_ns, e.ts_ns);
  };
  for (const uint32_t i : links.device_work) consider(trace.events[i]);
  if (trace.selection)
    for (const Event& e : trace.selection->outside) consider(e);
  return first_ns;
}

}  // namespace

UnsureQueue unsure_queue(const Trace& trace, const Links& links, int32_t device,
                         const IntervalSet& queue) {
  UnsureQueue unsure;
  unsure.before_first = intersected(queue, {{INT64_MIN, first_work_ns(trace, links, device)}});
  const EventWaits waits(trace);
  std::map<Stream, int64_t> last_launch_ns;  // of the streams that have had work
  std::vector<Interval> behind;
  int64_t end_ns = INT64_MIN;                   // of all work so far
  for (const uint32_t i : links.device_work) {  // by start
    const Event& work = trace.events[i];
    if (work.pid != device) continue;
    const bool is_launched = links.launch[i] != kNone;
    const Event* call = is_launched ? &trace.events[links.launch[i]] : nullptr;
    const auto [stream, is_first] = last_launch_ns.try_emplace({work.pid, work.tid}, INT64_MIN);
    if (is_launched) {
      const int64_t from_ns = std::max(end_ns, call->end_ns());
      const bool may_wait = is_first || waits.has_between(stream->second, *call);
      if (end_ns != INT64_MIN && work.ts_ns - from_ns >= kUnexplainedWaitNs && may_wait)
        behind.push_back({from_ns, work.ts_ns});
      stream->second = std::max(stream->second, call->ts_ns);
    }
    end_ns = std::max(end_ns, work.end_ns());
  }
  unsure.behind_others =
      subtracted(intersected(queue, united(std::move(behind))), unsure.before_first);
  return unsure;
}

BusiestDevice busiest_device_causes(const Trace& trace, const Links& links, const Timeline& time) {
  BusiestDevice busiest;
  busiest.device = busiest_device(trace, links);
  if (time.start_ns) busiest.span = {*time.start_ns, *time.end_ns};
  if (!busiest.device) return busiest;
  busiest.causes = idle_causes(trace, links, *busiest.device, busiest.span);
  busiest.unsure = unsure_queue(trace, links, *busiest.device, busiest.causes.of(IdleCause::queue));
  return busiest;
}

std::vector<DeviceIdle> idle_times(const Trace& trace, const Links& links) {
  const Timeline time = timeline(trace, links);
  return idle_times(trace, links, time, {});
}

std::vector<DeviceIdle> idle_times(const Trace& trace, const Links& links, const Timeline& time,
                                   const BusiestDevice& busiest) {
  std::vector<DeviceIdle> list;
  for (const DeviceUse& use : time.devices) {
    if (time.span_ns() <= 0) break;
    const bool is_known = busiest.device == use.device;
    const IdleCauses own =
        is_known ? IdleCauses()
                 : idle_causes(trace, links, use.device, {*time.start_ns, *time.end_ns});
    const IdleCauses& causes = is_known ? busiest.causes : own;
    DeviceIdle idle;
    idle.device = use.device;
    for (size_t c = 0; c < kIdleCauses; ++c) {
      idle.cause_ns[c] = total_ns(causes.idle[c]);
      idle.idle_ns += idle.cause_ns[c];
    }
    list.push_back(idle);
  }
  return list;
}

}  // namespace epilogue::trace
