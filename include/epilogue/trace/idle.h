// SPDX-License-Identifier: Apache-2.0
// Why a device did nothing, and what it costs to start work on it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/base/distribution.h"
#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

// --- Idle time ----------------------------------------------------------------------------------
// Why a device did nothing: each of its idle moments has one cause.

// In order of precedence: if two apply, the first one counts.
enum class IdleCause : uint8_t {
  queue,             // work had been launched and waited: launch gap
  launch,            // the host was inside a call that starts work
  sync,              // the host waited: cudaDeviceSynchronize, a blocking copy, ...
  data,              // the host was in a data loader's annotation
  profiler,          // the profiler did its own work: it asked for buffers, or emptied them
  host_in_ops,       // the host was in an op or in another runtime call
  host_between_ops,  // the host ran what is not traced between its ops: Python, mostly
  other,             // before the first or after the last event of the host
};
inline constexpr int kIdleCauses = static_cast<int>(IdleCause::other) + 1;
std::string_view idle_cause_name(IdleCause cause);  // "queue", "launch", "host_in_ops"

struct DeviceIdle {
  int32_t device = 0;
  int64_t idle_ns = 0;                             // span less busy; the causes add up to it
  std::array<int64_t, kIdleCauses> cause_ns = {};  // by IdleCause

  int64_t of(IdleCause cause) const { return cause_ns[static_cast<size_t>(cause)]; }
  int64_t host_ns() const { return of(IdleCause::host_in_ops) + of(IdleCause::host_between_ops); }
};

// Per device that worked, the busiest first, over the span of the trace (of a selection: its
// window, with the causes that the whole trace gives it). Empty without device work. Host threads
// that start device work decide; a wait on another thread (a data loader's, a watchdog's) is not
// the device's.
std::vector<DeviceIdle> idle_times(const Trace& trace, const Links& links);

// True for calls in which the host waits for the device: "cudaStreamSynchronize", ...
bool is_sync_call_name(std::string_view name);
// True for an annotation of a data loader, by its name. In traces of 2021 annotations are ops.
bool is_data_loading(const Trace& trace, const Event& event);
// True if `work` is a copy whose `call` returned only after it had ended: the host waited,
// whatever the call's name. A graph launch only happens to be that slow.
bool is_blocking_copy(const Trace& trace, const Event& work, const Event& call);

// --- Launches -----------------------------------------------------------------------------------
// Cost of starting work on the device.

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
  // Those that start work and do not wait for it: without waits and blocking copies, also
  // if others of the same name are launches. The costliest first.
  std::vector<CallStats> launching_calls;
  // The one launching call that takes over half of the time of all of them, if there are others.
  std::optional<SlowCall> outlier;
  int64_t launches = 0;  // kernel and graph launches
  int64_t graph_launches = 0;
  int64_t graph_kernels = 0;  // kernels that those started
  // From the end of the launch call to the start of its (first) kernel; negative if the kernel
  // started before the call returned. Empty if no kernel has a launch, and for a device that
  // runs its work inside the call (our CPU device).
  std::optional<Distribution> queue_delay;
  int64_t kernels_with_launch = 0;           // of single launches, not graphs
  int64_t kernels_shorter_than_launch = 0;   // of these: they take less time than their call
  int64_t kernels_before_launch = 0;         // started before their call did: clocks disagree
  std::optional<double> kernels_per_launch;  // of launches that have kernels
  std::optional<double> launches_per_step;   // launches inside steps over steps
};

LaunchStats launch_stats(const Trace& trace, const Links& links);

// True if each launch call contains its kernel: our CPU device.
bool is_synchronous_device(const Trace& trace);

}  // namespace epilogue::trace

#pragma GCC visibility pop
