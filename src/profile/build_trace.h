// SPDX-License-Identifier: Apache-2.0
// Where the two halves meet: what the recorder saw becomes the trace half's events.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "core/backend.h"
#include "epilogue/trace/event.h"
#include "profile/device_tracer.h"
#include "profile/recorder.h"

namespace epilogue::profiler {

// The name of the call that stands for starting a kernel of the CPU device.
inline constexpr std::string_view kLaunchName = "epiLaunchKernel";

struct Recording {
  std::vector<std::shared_ptr<ThreadBuffer>> buffers;
  TickAnchor begin;
  TickAnchor end;
  bool cpu_activity = true;
  // From a device with a clock of its own: what its tracer saw, or when its kernels ran (the unix
  // time of each of a DeviceTimer's marks). No devices: the CPU is the device.
  std::vector<DeviceInfo> devices;
  bool has_tracer = false;
  std::vector<DeviceActivity> activities;
  std::vector<int64_t> marks;
  trace::Recorded options;
};

struct EventCounts {
  int64_t ops = 0;
  int64_t kernels = 0;
  int64_t ranges = 0;
  double own_ns = 0;  // spent in the recorder for ops and kernels
};
EventCounts count_events(const Recording& recording);

trace::Trace build_trace(const Recording& recording);

}  // namespace epilogue::profiler
