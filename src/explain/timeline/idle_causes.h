// SPDX-License-Identifier: Apache-2.0
// The idle moments of one device, by cause.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "epilogue/trace/time.h"
#include "explain/index/intervals.h"

namespace epilogue::trace {

struct IdleCauses {
  IntervalSet busy;
  std::array<IntervalSet, kIdleCauses> idle;  // disjoint; with `busy` they fill the span

  const IntervalSet& of(IdleCause cause) const { return idle[static_cast<size_t>(cause)]; }
};

// The name of what is_data_loading() is true of, if it is an op or a range.
bool is_data_loading_name(std::string_view name);
// A Python function of torch.distributed, which may wait for other ranks.
inline bool is_of_distributed(std::string_view function) {
  return function.find("torch/distributed/") != std::string_view::npos;
}

// A gap of a twentieth of the span: then it is asked what Python function the host was in.
inline bool is_long_gap(int64_t gap_ns, int64_t span_ns) { return gap_ns * 20 >= span_ns; }

// Moments in which launched work waits while the device shows none, and may have had some that was
// not recorded: `before_first` its first recorded work, `behind_others` later: the work that waits
// is the first of its stream, or the host made the stream wait for an event, and nothing recorded
// ended right before it started (kUnexplainedWaitNs). Within `queue`, the moments of
// IdleCause::queue.
struct UnsureQueue {
  IntervalSet before_first;
  IntervalSet behind_others;
};
inline constexpr int64_t kUnexplainedWaitNs = 1'000'000;
UnsureQueue unsure_queue(const Trace& trace, const Links& links, int32_t device,
                         const IntervalSet& queue);

IdleCauses idle_causes(const Trace& trace, const Links& links, int32_t device, Interval span);

// The device that worked longest, over the span of the trace. Verdicts, gaps and idle times all
// read it: each set is a pass over all events.
struct BusiestDevice {
  std::optional<int32_t> device;  // empty: no device work, and no sets
  Interval span;                  // empty: no event has a time
  IdleCauses causes;
  UnsureQueue unsure;
};
BusiestDevice busiest_device_causes(const Trace& trace, const Links& links, const Timeline& time);

// The functions of the same names, of what is known already.
std::vector<DeviceIdle> idle_times(const Trace& trace, const Links& links, const Timeline& time,
                                   const BusiestDevice& busiest);
// `busiest` is used up: of a long trace its sets are large.
Verdicts judge_time(const Trace& trace, const Links& links, const Timeline& time,
                    BusiestDevice busiest, const ProfilerCost& profiler);

}  // namespace epilogue::trace
