// SPDX-License-Identifier: Apache-2.0
#include "trace/read/finish_trace.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

namespace epilogue::trace {
namespace {

// Our CPU device's launches go by this name, in files as in memory.
constexpr std::string_view kOwnLaunch = "epiLaunchKernel";
constexpr std::string_view kOwnMetadata = "epilogue_recorder";

}  // namespace

bool is_own_trace(const Trace& trace) {
  return trace.strings.find(kOwnLaunch).has_value() ||
         std::any_of(trace.metadata.begin(), trace.metadata.end(),
                     [](const auto& entry) { return entry.first == kOwnMetadata; });
}

void set_lane_names(Trace& trace, const std::vector<LaneName>& names) {
  using Kind = LaneName::Kind;
  std::unordered_map<int32_t, size_t> process_of;
  std::map<std::pair<int32_t, int64_t>, size_t> thread_of;
  for (const LaneName& name : names) {
    if (name.kind == Kind::thread_name || name.kind == Kind::thread_sort) {
      const auto [place, is_new] =
          thread_of.try_emplace({name.pid, name.tid}, trace.threads.size());
      if (is_new) trace.threads.push_back({.pid = name.pid, .tid = name.tid});
      Thread& thread = trace.threads[place->second];
      if (name.kind == Kind::thread_name) thread.name = trace.strings[name.text];
      if (name.kind == Kind::thread_sort) thread.sort_index = name.sort_index;
      continue;
    }
    const auto [place, is_new] = process_of.try_emplace(name.pid, trace.processes.size());
    if (is_new) trace.processes.push_back({.pid = name.pid});
    Process& process = trace.processes[place->second];
    if (name.kind == Kind::process_name) process.name = trace.strings[name.text];
    if (name.kind == Kind::process_labels) process.labels = trace.strings[name.text];
    if (name.kind == Kind::process_sort) process.sort_index = name.sort_index;
  }
}

void set_flows(Trace& trace, const std::vector<FlowEnd>& ends) {
  std::unordered_map<int64_t, const FlowEnd*> finish_of;
  for (const FlowEnd& end : ends)
    if (!end.is_start) finish_of.try_emplace(end.id, &end);
  for (const FlowEnd& start : ends) {
    if (!start.is_start) continue;
    const auto finish = finish_of.find(start.id);
    if (finish == finish_of.end()) continue;
    trace.flows.push_back({.id = start.id, .start = start.at, .end = finish->second->at});
    finish_of.erase(finish);  // one arrow per id
  }
}

void set_window(Trace& trace, const std::optional<RecordedSpan>& span) {
  if (span) {
    trace.start_ns = span->start_ns;
    trace.end_ns = span->end_ns;
    trace.span_name = trace.strings[span->name];
    return;
  }
  if (trace.events.empty()) return;
  trace.start_ns = trace.events.front().ts_ns;
  trace.end_ns = trace.start_ns;
  for (const Event& event : trace.events) {
    trace.start_ns = std::min(trace.start_ns, event.ts_ns);
    trace.end_ns = std::max(trace.end_ns, event.end_ns());
  }
}

void infer_recorded(Trace& trace) {
  Recorded& recorded = trace.recorded;
  recorded.record_shapes |= trace.inputs.size() > 0;
  recorded.profile_memory |= !trace.memory.empty();
  recorded.with_stack |= !trace.python.empty() || trace.import.python_functions_left_out > 0;
}

void set_device_label(Trace& trace) {
  const bool has_device =
      !trace.devices.empty() || std::any_of(trace.events.begin(), trace.events.end(),
                                            [](auto& e) { return is_device_category(e.category); });
  const bool is_tpu = std::any_of(
      trace.metadata.begin(), trace.metadata.end(),
      [](const auto& entry) { return entry.first == "xla_device" && entry.second == "\"TPU\""; });
  // Our own traces of a GPU describe it; those of a CPU have no device of a compute capability.
  const bool is_gpu = std::ranges::any_of(
      trace.devices, [](const DeviceProperties& device) { return device.compute_major > 0; });
  const bool is_own_cpu = is_own_trace(trace) && !is_gpu;
  trace.device_label = !has_device ? "" : is_own_cpu ? "KERNEL" : is_tpu ? "TPU" : "CUDA";
}

}  // namespace epilogue::trace
