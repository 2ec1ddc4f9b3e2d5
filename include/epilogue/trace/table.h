// SPDX-License-Identifier: Apache-2.0
// torch.profiler's key_averages(): one row per distinct op, kernel and annotation of a trace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

// Where a row's events ran. kDevice stands for whatever device the trace is of (CUDA, HIP, our CPU
// device); rows of both kinds carry device time, only kDevice rows enter its total.
enum class RowDevice : uint8_t { cpu, device };

// Sums over the events of one group; what is not a sum comes from the group's first event. An op's
// self time excludes its children; its device time is that of the kernels it and they launched.
struct Row {
  std::string key;  // the name; ProfilerStep#N are merged to "ProfilerStep*"
  std::string overload_name;
  RowDevice device = RowDevice::cpu;
  bool is_user_annotation = false;
  bool is_async = false;
  bool is_top_level = true;  // no enclosing op on its thread
  int64_t node_id = -1;
  int64_t count = 0;
  int64_t cpu_time_total_ns = 0;
  int64_t self_cpu_time_total_ns = 0;
  int64_t device_time_total_ns = 0;
  int64_t self_device_time_total_ns = 0;
  int64_t cpu_memory_bytes = 0;  // allocated minus freed inside the events
  int64_t self_cpu_memory_bytes = 0;
  int64_t device_memory_bytes = 0;
  int64_t self_device_memory_bytes = 0;
  uint64_t flops = 0;
  // Of count and self device time, with KeyAveragesOptions::captured: calls that a graph replays.
  // They take no time of the CPU.
  int64_t captured_count = 0;
  int64_t captured_self_device_ns = 0;
  std::string input_shapes;        // "[[128, 64], []]"; "" unless grouped by shape
  std::vector<std::string> stack;  // the first n frames, innermost first

  double cpu_time_avg_us() const;
  double device_time_avg_us() const;
};

struct KeyAverages {
  std::vector<Row> rows;  // in order of first appearance
  std::string device_label = "CUDA";
  bool profile_memory = false;
  bool with_flops = false;
  bool has_captured_ops = false;  // KeyAveragesOptions::captured was given

  int64_t self_cpu_time_total_ns() const;
  // Over device rows that are not annotations.
  int64_t self_device_time_total_ns() const;
};

struct KeyAveragesOptions {
  bool group_by_input_shape = false;
  int group_by_stack_n = 0;
  bool group_by_overload_name = false;
  // Work of replayed graphs is booked to the ops that captured it: their own device time, and the
  // device time of the ops that were around them. Where the trace has no such row there is one.
  // What encloses the replay keeps it in its total. Must outlive the call; null: none.
  const CapturedOps* captured = nullptr;
};

KeyAverages key_averages(const Trace& trace, const KeyAveragesOptions& options = {});

}  // namespace epilogue::trace

#pragma GCC visibility pop
