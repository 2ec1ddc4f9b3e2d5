// SPDX-License-Identifier: Apache-2.0
// How long the trace is and how long each device and stream worked.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

namespace epilogue::trace {

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
  // that the driver wrote without a time (start and duration 0). Of a selection: its window, as far
  // as the whole trace reaches; busy times are those within. Empty: there is no such event.
  std::optional<int64_t> start_ns;
  std::optional<int64_t> end_ns;
  std::vector<DeviceUse> devices;  // the busiest first; empty where nothing ran

  int64_t span_ns() const { return start_ns ? *end_ns - *start_ns : 0; }
  // Of the busiest device. Empty where no device worked or the span has no length.
  std::optional<double> busy_pct() const;
};

Timeline timeline(const Trace& trace, const Links& links);

// True for what counts as the span: see Timeline::start_ns.
bool counts_for_span(const Event& event);

}  // namespace epilogue::trace
