// SPDX-License-Identifier: Apache-2.0
#include "explain/index/trace_metadata.h"

#include <algorithm>
#include <charconv>

namespace epilogue::trace {

std::optional<std::string_view> find_metadata(const Trace& trace, std::string_view key) {
  const auto at = std::find_if(trace.metadata.begin(), trace.metadata.end(),
                               [&](const auto& entry) { return entry.first == key; });
  if (at == trace.metadata.end()) return std::nullopt;
  return std::string_view(at->second);
}

std::optional<double> metadata_number(const Trace& trace, std::string_view key) {
  const std::optional<std::string_view> json = find_metadata(trace, key);
  if (!json) return std::nullopt;
  double value = 0;
  const char* const begin = json->data();
  const char* const end = begin + json->size();
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || stop != end || !(value > 0)) return std::nullopt;
  return value;
}

bool is_own_cpu_trace(const Trace& trace) { return trace.device_label == "KERNEL"; }

namespace {

// Since 2026-04-16 Kineto writes stream waits to a lane of their own: the stream's number plus
// this.
constexpr int64_t kStreamSyncLane = 1'000'000;
// Fewer events may be whole microseconds by chance.
constexpr size_t kEnoughEvents = 16;

bool has_occupancy(const Trace& trace) {
  return std::any_of(trace.kernels.begin(), trace.kernels.end(), [&](const KernelArgs& args) {
    return trace.strings[args.other_args].find("\"occupancy\"") != std::string_view::npos;
  });
}

bool has_sync_lane(const Trace& trace) {
  return std::any_of(trace.events.begin(), trace.events.end(), [](const Event& e) {
    return e.category == Category::cuda_sync && e.tid >= kStreamSyncLane;
  });
}

bool has_whole_microseconds(const Trace& trace) {
  return trace.events.size() >= kEnoughEvents &&
         std::all_of(trace.events.begin(), trace.events.end(),
                     [](const Event& e) { return e.ts_ns % 1000 == 0 && e.dur_ns % 1000 == 0; });
}

}  // namespace

int64_t clock_step_ns(const Trace& trace) { return has_whole_microseconds(trace) ? 1000 : 1; }

Recorder recorder_of(const Trace& trace) {
  if (find_metadata(trace, "epilogue_recorder")) return Recorder::own;
  if (find_metadata(trace, "nsight_systems")) return Recorder::nsight;
  if (find_metadata(trace, "xla_profiler")) return Recorder::xla;
  return Recorder::torch;
}

std::string trace_era(const Trace& trace) {
  switch (recorder_of(trace)) {
    case Recorder::own: return "Written by epilogue.";
    case Recorder::nsight: return "Recorded by Nsight Systems.";
    case Recorder::xla: return "Recorded by the XLA profiler (JAX, TensorFlow).";
    case Recorder::torch: break;
  }
  if (has_sync_lane(trace)) return "PyTorch profiler of 2026-04 or later.";
  if (has_occupancy(trace)) return "PyTorch profiler of 2026-03 or later.";
  if (std::any_of(trace.kernels.begin(), trace.kernels.end(),
                  [](const KernelArgs& args) { return args.graph_id >= 0; }))
    return "PyTorch profiler of 2026-02 or later.";
  if (trace.base_time_ns != 0) return "PyTorch profiler of 2024-05 or later.";
  if (trace.import.is_bare_array) return "PyTorch profiler of early 2021.";
  if (has_whole_microseconds(trace))
    return "PyTorch profiler before 2024-03: times are whole microseconds.";
  return "PyTorch profiler of 2024-03 to 2024-05, or re-written by another tool.";
}

}  // namespace epilogue::trace
