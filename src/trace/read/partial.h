// SPDX-License-Identifier: Apache-2.0
// The events of one window of a trace's text. Strings and argument lists are numbered by the worker
// that read the window; merging renumbers them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "epilogue/trace/event.h"
#include "trace/read/import_notes.h"

namespace epilogue::trace {

// One end of a forward-to-backward arrow.
struct FlowEnd {
  int64_t id = 0;
  Flow::End at;
  bool is_start = false;
};

// A metadata event: a name or a position for a process or a thread.
struct LaneName {
  enum class Kind : uint8_t {
    process_name,
    process_labels,
    process_sort,
    thread_name,
    thread_sort
  };
  Kind kind = Kind::process_name;
  int32_t pid = 0;
  int64_t tid = 0;
  StringId text = 0;
  int64_t sort_index = 0;
};

// The `Trace` event: what was recorded, from when to when.
struct RecordedSpan {
  StringId name = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

struct Partial {
  std::vector<Event> events;
  std::vector<OpArgs> ops;
  std::vector<KernelArgs> kernels;
  std::vector<RuntimeArgs> runtime_calls;
  std::vector<SyncArgs> syncs;
  std::vector<PythonArgs> python;
  std::vector<PythonFrame> frames;
  std::vector<MemoryEvent> memory;
  std::vector<FlowEnd> flow_ends;
  std::vector<LaneName> lane_names;
  std::optional<RecordedSpan> span;
  int64_t usable_events = 0;
  int64_t python_functions_left_out = 0;
  ImportNotes notes;

  // The strings that the worker met for the first time, in order of its numbers.
  std::vector<std::string_view> new_strings;
  std::vector<std::vector<OpInput>> new_inputs;

  // Keeps the memory for the next window.
  void clear();
};

}  // namespace epilogue::trace
