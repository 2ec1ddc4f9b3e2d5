// SPDX-License-Identifier: Apache-2.0
// How long the trace is, how long each device and stream worked, and the parts of the run that are
// judged one by one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

// --- Timeline -----------------------------------------------------------------------------------
// How long the trace is and how long each device and stream worked.

struct StreamUse {
  int64_t stream = 0;
  int64_t events = 0;   // kernels, copies and fills
  int64_t busy_ns = 0;  // the union of them: kernels of one stream may overlap
};

struct DeviceUse {
  int32_t device = 0;
  int64_t kernels = 0;
  int64_t copies = 0;     // copies and fills
  int64_t busy_ns = 0;    // union over all streams
  int64_t kernel_ns = 0;  // union of the kernels alone
  int64_t first_ns = 0;
  int64_t last_ns = 0;
  std::vector<StreamUse> streams;  // by number
};

struct Timeline {
  // From the first start to the last end over ops, annotations, runtime and driver calls and device
  // work. Python frames, overhead events and the profiler's own span do not count, nor do kernels
  // that the driver wrote without a time (start and duration 0). For a selection: its window, as
  // far as the whole trace reaches; busy times are those within. Empty: there is no such event.
  std::optional<int64_t> start_ns;
  std::optional<int64_t> end_ns;
  std::vector<DeviceUse> devices;  // the busiest first; empty if nothing ran

  int64_t span_ns() const { return start_ns ? *end_ns - *start_ns : 0; }
  // Busy share of the busiest device. Empty if no device worked or the span has no length.
  std::optional<double> busy_pct() const;
};

Timeline timeline(const Trace& trace, const Links& links);

// True for what counts as the span: see Timeline::start_ns.
bool counts_for_span(const Event& event);

// --- Steps --------------------------------------------------------------------------------------
// The parts of a run that are judged one by one: its steps, else what is most like steps.

enum class RegionKind : uint8_t {
  step,        // a ProfilerStep#N annotation
  annotation,  // an outermost annotation of the thread that launches most, without steps
  window,      // all of the trace, without annotations too
};

// Ops, calls and device work belong to the region in which they start, on any thread of its
// process; device work to the one that launched it, whenever it ran.
struct Region {
  std::string name;
  RegionKind kind = RegionKind::window;
  uint32_t event = kNone;  // the annotation; kNone for the window
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t ops = 0;
  int64_t launches = 0;  // kernel and graph launches
  int64_t kernels = 0;
  int64_t copies = 0;            // copies and fills
  int64_t launched_work_ns = 0;  // union of the device work that it launched, on any device
  int64_t device_busy_ns = 0;  // of the busiest device between its start and end, whoever launched
  int64_t cpu_op_ns = 0;       // time in which at least one thread was in an op
  // The window that the verdict is of: start and end, unless most of what an annotation launched
  // ran outside of them (the host was ahead). Then it is the device's: from the end of what was
  // launched before to the end of what the region launched.
  int64_t device_start_ns = 0;
  int64_t device_end_ns = 0;
  int64_t window_busy_ns = 0;  // of the busiest device in its window

  int64_t wall_ns() const { return end_ns - start_ns; }
  int64_t device_idle_ns() const { return wall_ns() - device_busy_ns; }
};

// One per ProfilerStep, by start; empty if the trace has none.
std::vector<Region> steps(const Trace& trace, const Links& links);

// The steps, else the outermost annotations, else the whole window. Empty for an empty trace.
std::vector<Region> regions(const Trace& trace, const Links& links);

// Time that was taken out of a trace before it was explained: its main thread did not run then.
struct Pauses {
  int64_t count = 0;
  int64_t ns = 0;
};

}  // namespace epilogue::trace

#pragma GCC visibility pop
