// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/links.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "trace/id_index.h"
#include "trace/nesting.h"
#include "trace/step_name.h"

namespace epilogue::trace {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The ProfilerSteps of each process, to be asked which one a moment falls into.
class StepIndex {
 public:
  StepIndex(const Trace& trace, const std::vector<uint32_t>& steps) {
    for (uint32_t i = 0; i < steps.size(); ++i) {
      const Event& step = trace.events[steps[i]];
      of_process(step.pid).push_back({step.ts_ns, step.end_ns(), i});
    }
  }

  // Steps of a process follow each other; should two overlap, the one that started last counts.
  uint32_t find(const Event& event) const {
    for (const auto& [pid, steps] : processes_) {
      if (pid != event.pid) continue;
      const auto after =
          std::upper_bound(steps.begin(), steps.end(), event.ts_ns,
                           [](int64_t ts_ns, const Step& s) { return ts_ns < s.start_ns; });
      if (after == steps.begin()) return kNone;
      const Step& step = *std::prev(after);
      return event.ts_ns < step.end_ns ? step.position : kNone;
    }
    return kNone;
  }

 private:
  struct Step {
    int64_t start_ns;
    int64_t end_ns;
    uint32_t position;
  };
  std::vector<Step>& of_process(int32_t pid) {
    for (auto& [known, steps] : processes_)
      if (known == pid) return steps;
    return processes_.emplace_back(pid, std::vector<Step>()).second;
  }

  std::vector<std::pair<int32_t, std::vector<Step>>> processes_;  // one, but for merged traces
};

// An op without length has only a launch call of the same instant as a child: the clock (whole
// microseconds until 2024) was too coarse for both. Among ops of one instant the parent is unknown.
bool encloses(const Event& op, const Event& inner) {
  if (op.dur_ns == 0)
    return is_launch_category(inner.category) && inner.ts_ns == op.ts_ns && inner.dur_ns == 0;
  return inner.ts_ns < op.end_ns() && inner.end_ns() <= op.end_ns();
}

class Linker {
 public:
  explicit Linker(const Trace& trace) : trace_(trace) {
    names_.reserve(trace.strings.size());
    for (StringId id = 0; id < trace.strings.size(); ++id) {
      const std::string_view text = trace.strings[id];
      names_.push_back({text.starts_with(kStepPrefix), is_kernel_launch_name(text)});
    }
    const size_t n = trace.events.size();
    for (std::vector<uint32_t>* column : {&links_.parent, &links_.launch, &links_.op, &links_.step})
      column->assign(n, kNone);
  }

  Links link() {
    announce();
    collect();
    set_parents();
    join_device_work();
    set_steps();
    count();
    return std::move(links_);
  }

 private:
  struct NameFlags {
    bool is_step;
    bool is_kernel_launch;
  };

  void announce() {
    for (const Event& event : trace_.events) {
      if (event.category == Category::cpu_op && event.external_id != 0)
        ops_.announce(event.external_id);
      if (is_launch_category(event.category) && event.correlation != 0)
        calls_.announce(event.correlation);
    }
  }

  void collect() {
    for (uint32_t i = 0; i < trace_.events.size(); ++i) {
      const Event& event = trace_.events[i];
      if (event.category == Category::cpu_op) {
        if (event.external_id != 0) ops_.add(event.external_id, i);
      } else if (is_launch_category(event.category)) {
        if (event.correlation != 0)
          calls_.add(event.correlation, i);
        else if (event.external_id != 0)
          add_named_call(event.external_id, i);
        if (names_[event.name].is_kernel_launch) links_.launches.push_back(i);
      } else if (is_device_work(event.category)) {
        links_.device_work.push_back(i);
      } else if (event.category == Category::user_annotation && names_[event.name].is_step) {
        links_.steps.push_back(i);
      }
    }
    ops_.finish();
    calls_.finish();
    for (std::vector<uint32_t>* list : {&links_.launches, &links_.device_work, &links_.steps})
      sort_by_start(*list);
  }

  void sort_by_start(std::vector<uint32_t>& indices) const {
    const auto starts_before = [&](uint32_t a, uint32_t b) {
      const int64_t x = trace_.events[a].ts_ns;
      const int64_t y = trace_.events[b].ts_ns;
      return x != y ? x < y : a < b;
    };
    if (!std::is_sorted(indices.begin(), indices.end(), starts_before))
      std::sort(indices.begin(), indices.end(), starts_before);
  }

  // A number per thread; neighbours in the file mostly share theirs.
  uint32_t lane(const Event& e) {
    if (lane_count_ > 0 && e.pid == last_pid_ && e.tid == last_tid_) return last_lane_;
    last_pid_ = e.pid;
    last_tid_ = e.tid;
    const auto [place, is_new] = lanes_[e.pid].try_emplace(e.tid, lane_count_);
    if (is_new) ++lane_count_;
    return last_lane_ = place->second;
  }

  bool is_sync_op(const Event& event) const {
    if (event.category != Category::cpu_op) return false;
    const OpArgs* args = trace_.op_args(event);
    return args == nullptr || !args->is_async;
  }

  void set_parents() {
    std::vector<std::vector<uint32_t>> open_by_lane;
    for (const uint32_t i : event_order(trace_)) {
      const Event& event = trace_.events[i];
      const bool is_call = is_launch_category(event.category);
      if (!is_call && !is_sync_op(event)) continue;
      const uint32_t number = lane(event);
      if (number == open_by_lane.size()) open_by_lane.emplace_back();
      std::vector<uint32_t>& open = open_by_lane[number];
      while (!open.empty() && !encloses(trace_.events[open.back()], event)) open.pop_back();
      if (!open.empty()) links_.parent[i] = open.back();
      if (is_call)
        links_.op[i] = links_.parent[i];
      else
        open.push_back(i);
    }
  }

  // Adds a call without a correlation that alone carries its External id: in old traces of ROCm
  // it is the call's own, and its kernel carries the same. Ids of several calls are an op's.
  void add_named_call(int64_t id, uint32_t call) {
    const auto [place, is_new] = named_calls_.try_emplace(id, call);
    if (!is_new) place->second = kNone;
  }
  uint32_t named_call(int64_t id) const {
    const auto found = id == 0 ? named_calls_.end() : named_calls_.find(id);
    return found == named_calls_.end() ? kNone : found->second;
  }

  void join_device_work() {
    for (const uint32_t i : links_.device_work) {
      const Event& work = trace_.events[i];
      const uint32_t named = work.external_id == 0 ? kNone : ops_.find(work.external_id);
      if (work.correlation == 0) {
        links_.launch[i] = named_call(work.external_id);
        links_.op[i] = links_.launch[i] != kNone ? links_.op[links_.launch[i]] : named;
        ++links_.linked_by_external_id;
        continue;
      }
      const uint32_t call = calls_.find(work.correlation);
      if (call == kNone) continue;
      links_.launch[i] = call;
      links_.op[i] = links_.op[call];
      if (work.external_id != 0 && named != links_.op[i]) ++links_.external_id_disagrees;
    }
  }

  void set_steps() {
    if (links_.steps.empty()) return;
    const StepIndex steps(trace_, links_.steps);
    for (uint32_t i = 0; i < trace_.events.size(); ++i) {
      const Event& e = trace_.events[i];
      if (e.category == Category::cpu_op || is_launch_category(e.category))
        links_.step[i] = steps.find(e);
    }
    for (const uint32_t i : links_.device_work) {
      const uint32_t cause = links_.launch[i] != kNone ? links_.launch[i] : links_.op[i];
      if (cause != kNone) links_.step[i] = links_.step[cause];
    }
  }

  // The correlations of the calls that a selection left out.
  std::unordered_set<int64_t> outside_calls() const {
    std::unordered_set<int64_t> correlations;
    if (!trace_.selection) return correlations;
    for (const Event& e : trace_.selection->outside)
      if (is_launch_category(e.category) && e.correlation != 0) correlations.insert(e.correlation);
    return correlations;
  }

  void count() {
    std::vector<bool> has_work(trace_.events.size());
    const std::unordered_set<int64_t> outside = outside_calls();
    for (const uint32_t i : links_.device_work) {
      const uint32_t call = links_.launch[i];
      if (call != kNone) has_work[call] = true;
      if (trace_.events[i].category != Category::kernel) continue;
      ++links_.kernels;
      if (call != kNone) continue;
      ++(outside.contains(trace_.events[i].correlation) ? links_.kernels_launched_outside
                                                        : links_.kernels_without_launch);
    }
    // A call without a correlation says nothing about its kernel.
    for (const uint32_t i : links_.launches)
      if (!has_work[i] && trace_.events[i].correlation != 0) ++links_.launches_without_kernel;
  }

  const Trace& trace_;
  Links links_;
  std::vector<NameFlags> names_;                       // by StringId
  IdIndex ops_;                                        // by External id
  IdIndex calls_;                                      // by correlation
  std::unordered_map<int64_t, uint32_t> named_calls_;  // by External id
  std::unordered_map<int32_t, std::unordered_map<int64_t, uint32_t>> lanes_;
  uint32_t lane_count_ = 0;
  int32_t last_pid_ = 0;
  int64_t last_tid_ = 0;
  uint32_t last_lane_ = 0;
};

}  // namespace

Links link(const Trace& trace) { return Linker(trace).link(); }

bool is_kernel_launch_name(std::string_view name) {
  return contains(name, "Launch") && !contains(name, "HostFunc") && !contains(name, "Get");
}

bool is_graph_launch_name(std::string_view name) { return contains(name, "GraphLaunch"); }

}  // namespace epilogue::trace
