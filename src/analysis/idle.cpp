// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/idle.h"

#include <algorithm>
#include <map>
#include <set>

#include "analysis/device_busy.h"
#include "analysis/idle_causes.h"
#include "epilogue/trace/timeline.h"

namespace epilogue::trace {
namespace {

constexpr std::array<std::string_view, kIdleCauses> kCauseNames = {
    "queue", "launch", "sync", "data", "host_in_ops", "host_between_ops", "other"};

// PyTorch's DataLoader names its annotation "enumerate(DataLoader)#...", users theirs "data_load".
constexpr std::array<std::string_view, 3> kDataMarks = {"DataLoader", "dataloader", "data_load"};

bool is_data_name(std::string_view name) {
  return std::any_of(kDataMarks.begin(), kDataMarks.end(),
                     [&](std::string_view mark) { return name.find(mark) != name.npos; });
}

using ThreadKey = std::pair<int32_t, int64_t>;

// Where the host was, as sets that may overlap.
class HostStates {
 public:
  HostStates(const Trace& trace, const Links& links, int32_t device) : trace_(trace) {
    for (StringId id = 0; id < trace.strings.size(); ++id) {
      const std::string_view name = trace.strings[id];
      names_.push_back({is_sync_call_name(name), is_data_name(name), is_kernel_launch_name(name)});
    }
    add_device_work(links, device);
    for (const uint32_t i : links.launches) driving_.insert(thread_of(trace.events[i]));
    for (uint32_t i = 0; i < trace.events.size(); ++i) add(trace.events[i], i);
    for (const auto& [thread, range] : ranges_)
      if (driving_.empty() || driving_.contains(thread)) add_to(IdleCause::kHostBetweenOps, range);
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
  void add_to(IdleCause cause, Interval i) { states_[static_cast<size_t>(cause)].push_back(i); }

  // From the end of its launch call to its start, work waits. A call that copies and returns only
  // after the copy has ended is a wait of the host, whatever its name.
  void add_device_work(const Links& links, int32_t device) {
    starts_work_.resize(trace_.events.size());
    blocks_.resize(trace_.events.size());
    for (const uint32_t i : links.device_work) {
      if (links.launch[i] == kNone) continue;
      const Event& work = trace_.events[i];
      const Event& call = trace_.events[links.launch[i]];
      starts_work_[links.launch[i]] = true;
      driving_.insert(thread_of(call));
      if (work.category == Category::kGpuMemcpy && call.end_ns() >= work.end_ns())
        blocks_[links.launch[i]] = true;
      if (work.pid == device) add_to(IdleCause::kQueue, {call.end_ns(), work.ts_ns});
    }
  }

  void add(const Event& e, uint32_t i) {
    const Interval interval = {e.ts_ns, e.end_ns()};
    if (is_launch_category(e.category)) {
      extend(e);
      if (names_[e.name].is_sync || blocks_[i]) {
        if (driving_.contains(thread_of(e))) add_to(IdleCause::kSync, interval);
      } else if (starts_work_[i] || names_[e.name].is_kernel_launch) {
        add_to(IdleCause::kLaunch, interval);
      } else {
        add_to(IdleCause::kHostInOps, interval);
      }
    } else if (e.category == Category::kCpuOp) {
      extend(e);
      add_to(IdleCause::kHostInOps, interval);
    } else if (e.category == Category::kUserAnnotation) {
      extend(e);
      if (names_[e.name].is_data) add_to(IdleCause::kData, interval);
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

IdleCauses idle_causes(const Trace& trace, const Links& links, int32_t device, Interval span) {
  IdleCauses causes;
  causes.busy = intersected(device_busy(trace, links, device), {span});
  IntervalSet rest = gaps(causes.busy, span);
  HostStates host(trace, links, device);
  for (int c = 0; c < static_cast<int>(IdleCause::kOther); ++c) {
    const IntervalSet state = host.take(static_cast<IdleCause>(c));
    causes.idle[static_cast<size_t>(c)] = intersected(rest, state);
    rest = subtracted(rest, state);
  }
  causes.idle[static_cast<size_t>(IdleCause::kOther)] = std::move(rest);
  return causes;
}

std::vector<DeviceIdle> idle_times(const Trace& trace, const Links& links) {
  const Timeline time = timeline(trace, links);
  std::vector<DeviceIdle> list;
  for (const DeviceUse& use : time.devices) {
    if (time.span_ns() <= 0) break;
    const IdleCauses causes = idle_causes(trace, links, use.device, {*time.start_ns, *time.end_ns});
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
