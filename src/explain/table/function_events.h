// SPDX-License-Identifier: Apache-2.0
// The events that a table counts, linked and nested as PyTorch does it: its FunctionEvents.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

namespace epilogue::trace {

// Names that stand for themselves, outside the trace's pool (which is const here).
inline constexpr StringId kStepName = kNone - 1;  // "ProfilerStep*", for all ProfilerStep#N
inline constexpr StringId kMemoryName = kNone - 2;
inline constexpr StringId kOutOfMemoryName = kNone - 3;

// One event with its total and its self metrics. A trace of 1 GB has millions: what the trace
// itself says of an event is looked up there.
struct FunctionEvent {
  StringId name = 0;        // in the pool, or one of the above
  uint32_t parent = kNone;  // index of the enclosing FunctionEvent on the same thread
  StringId stack = 0;       // of a backward op: that of its forward op
  uint32_t source = 0;      // position in Trace::events; of a memory record: in Trace::memory
  uint32_t memory = kNone;  // in FunctionEvents::memory; kNone: no byte moved
  bool is_memory_record : 1 = false;
  bool is_device : 1 = false;
  bool is_user_annotation : 1 = false;
  bool is_async : 1 = false;
  // A Python function: no row, but what it takes is not its caller's own.
  bool is_frame : 1 = false;
  // Was the only child of a parent of its name: the parent counts for both.
  bool is_collapsed : 1 = false;

  int64_t self_cpu_time_ns = 0;
  int64_t device_time_ns = 0;
  int64_t self_device_time_ns = 0;
};

// Bytes that an event allocated less those that it freed. Most events do neither, in most traces
// all.
struct FunctionMemory {
  int64_t cpu_bytes = 0;
  int64_t self_cpu_bytes = 0;
  int64_t device_bytes = 0;
  int64_t self_device_bytes = 0;
};

// Sorted by start, longer first; parents precede children. Python frames are there if they were
// read (PythonFrames::events): as in PyTorch 2.15 they have no row of their own. Left out:
// names that PyTorch drops, shares of CPU kernels, instants.
struct FunctionEvents {
  std::vector<FunctionEvent> events;
  std::vector<FunctionMemory> memory;

  FunctionMemory memory_of(const FunctionEvent& event) const {
    return event.memory == kNone ? FunctionMemory{} : memory[event.memory];
  }
};
// Work with an op in `captured` is no op's own here: it enters the totals of the ops around the
// replay, and the table books it.
FunctionEvents function_events(const Trace& trace, const CapturedOps* captured = nullptr);

// The event; null for the rows of memory records.
const Event* event_of(const Trace& trace, const FunctionEvent& event);
// Time on the host, its children's included; 0 on a device.
int64_t cpu_time_ns(const Trace& trace, const FunctionEvent& event);
// The args of the op or annotation that an event is; null where it has none.
const OpArgs* args_of(const Trace& trace, const FunctionEvent& event);

std::string_view function_name(const Trace& trace, StringId name);

// Gives the events under a backward function the stack of the forward op with the same sequence
// number and thread.
void set_backward_stacks(const Trace& trace, std::vector<FunctionEvent>& events);

}  // namespace epilogue::trace
