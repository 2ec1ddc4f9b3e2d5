// SPDX-License-Identifier: Apache-2.0
// Every nanosecond of a trace's wall time booked once: to the kernel that ran, to the reason why
// the device was idle, or, without device work, to the op that the main thread was in.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "epilogue/trace/links.h"
#include "epilogue/trace/time.h"
#include "explain/index/intervals.h"

namespace epilogue::trace {

// Executions of one kernel that one op launched. Without device work: calls of one op.
struct BookedWork {
  StringId kernel = 0;  // the op's name where there is no device work
  StringId op = 0;      // innermost op around the launch; 0: unknown (graphs, cut-off launches)
  double count = 0;
  int64_t total_ns = 0;    // of all durations; of ops: less the ops directly below them
  int64_t booked_ns = 0;   // of the wall time: moments that several share belong to the first
  int64_t bytes = 0;       // read and written by all executions; -1: the trace does not say
  StringId fused_ops = 0;  // KernelArgs::fused_ops
};

struct TimeAccount {
  bool has_device_work = false;
  int64_t wall_ns = 0;
  int64_t busy_ns = 0;
  std::vector<BookedWork> work;
  std::array<int64_t, kIdleCauses> idle_ns = {};  // without device work all of it is kOther
};

// `windows` are the moments that count as wall time.
TimeAccount account_time(const Trace& trace, const Links& links, const IntervalSet& windows);

// The same of an average of so many steps. Times are rounded so that they still add up.
void average_over(TimeAccount& account, int64_t steps);

// The steps, or the span where there are none or `use_steps` is false.
IntervalSet wall_windows(const Trace& trace, const Links& links, bool use_steps);

}  // namespace epilogue::trace
