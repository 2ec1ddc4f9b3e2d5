// SPDX-License-Identifier: Apache-2.0
// Every nanosecond of a trace's wall time booked once: to the kernel that ran, to the reason why
// the device was idle, or, without device work, to the op that the main thread was in.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/trace/links.h"
#include "epilogue/trace/time.h"
#include "explain/index/intervals.h"

namespace epilogue::trace {

// Executions of one kernel that one op launched. Without device work: calls of one op.
struct BookedWork {
  StringId kernel = 0;  // the op's name where there is no device work
  // Innermost op around the launch, or the captured one of a graph; see TimeAccount::op_name(). 0:
  // unknown (graphs, cut-off launches).
  StringId op = 0;
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
  // Names of captured ops that the trace does not have; their ids follow those of its strings.
  std::vector<std::string> more_names;

  std::string_view op_name(const Trace& trace, StringId op) const {
    return op < trace.strings.size() ? trace.strings[op] : more_names[op - trace.strings.size()];
  }
};

// `windows` are the moments that count as wall time. Work of graphs has its op in `captured`; null:
// none.
TimeAccount account_time(const Trace& trace, const Links& links, const IntervalSet& windows,
                         const CapturedOps* captured = nullptr);

// The same of an average of so many steps. Times are rounded so that they still add up.
void average_over(TimeAccount& account, int64_t steps);

// The steps, or the span where there are none or `use_steps` is false.
IntervalSet wall_windows(const Trace& trace, const Links& links, bool use_steps);

}  // namespace epilogue::trace
