// SPDX-License-Identifier: Apache-2.0
// Why a device did nothing: each of its idle moments has one cause.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

namespace epilogue::trace {

// In order of precedence: where two apply, the first one counts.
enum class IdleCause : uint8_t {
  kQueue,           // work had been launched and waited: launch gap
  kLaunch,          // the host was inside a call that starts work
  kSync,            // the host waited: cudaDeviceSynchronize, a blocking copy, ...
  kData,            // the host was in a data loader's annotation
  kHostInOps,       // the host was in an op or in another runtime call
  kHostBetweenOps,  // the host ran what is not traced between its ops: Python, mostly
  kOther,           // before the first or after the last event of the host
};
inline constexpr int kIdleCauses = static_cast<int>(IdleCause::kOther) + 1;
std::string_view idle_cause_name(IdleCause cause);  // "queue", "launch", "host_in_ops"

struct DeviceIdle {
  int32_t device = 0;
  int64_t idle_ns = 0;                             // span less busy; the causes add up to it
  std::array<int64_t, kIdleCauses> cause_ns = {};  // by IdleCause

  int64_t of(IdleCause cause) const { return cause_ns[static_cast<size_t>(cause)]; }
  int64_t host_ns() const { return of(IdleCause::kHostInOps) + of(IdleCause::kHostBetweenOps); }
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
// True where `work` is a copy whose `call` returned only after it had ended: the host waited,
// whatever the call's name. A graph launch only happens to be that slow.
bool is_blocking_copy(const Trace& trace, const Event& work, const Event& call);

}  // namespace epilogue::trace
