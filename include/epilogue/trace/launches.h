// SPDX-License-Identifier: Apache-2.0
// What it costs to start work on the device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "epilogue/trace/distribution.h"
#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

namespace epilogue::trace {

struct CallStats {
  std::string name;
  bool starts_work = false;  // a launch, or a call that some device work is the result of
  Distribution time;         // inside the call
};

// A call that takes most of the time of its kind.
struct SlowCall {
  std::string name;
  int64_t dur_ns = 0;
  bool is_first = false;  // of the trace's launches of the kernel that it starts
};

struct LaunchStats {
  std::vector<CallStats> calls;  // all runtime and driver calls, the costliest first
  // Of these, what starts work and does not wait for it: without waits and blocking copies, also
  // where others of the same name are launches. The costliest first.
  std::vector<CallStats> launching_calls;
  // The one launching call that takes over half of the time of all of them, where there are others.
  std::optional<SlowCall> outlier;
  int64_t launches = 0;  // kernel and graph launches
  int64_t graph_launches = 0;
  int64_t graph_kernels = 0;  // kernels that those started
  // From the end of the launch call to the start of its (first) kernel; negative where the kernel
  // started before the call returned. Empty where no kernel has a launch, and for a device that
  // runs its work inside the call (our CPU device).
  std::optional<Distribution> queue_delay;
  int64_t kernels_with_launch = 0;           // of single launches, not graphs
  int64_t kernels_shorter_than_launch = 0;   // of these: over sooner than their call
  int64_t kernels_before_launch = 0;         // started before their call did: clocks disagree
  std::optional<double> kernels_per_launch;  // of launches that have kernels
  std::optional<double> launches_per_step;   // launches inside steps over steps
};

LaunchStats launch_stats(const Trace& trace, const Links& links);

// True where each launch call contains its kernel: our CPU device.
bool is_synchronous_device(const Trace& trace);

}  // namespace epilogue::trace
