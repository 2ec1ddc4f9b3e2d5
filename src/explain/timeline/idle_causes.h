// SPDX-License-Identifier: Apache-2.0
// The idle moments of one device, by cause.
#pragma once

#include <array>

#include "epilogue/trace/time.h"
#include "explain/index/intervals.h"

namespace epilogue::trace {

struct IdleCauses {
  IntervalSet busy;
  std::array<IntervalSet, kIdleCauses> idle;  // disjoint; with `busy` they fill the span

  const IntervalSet& of(IdleCause cause) const { return idle[static_cast<size_t>(cause)]; }
};

// A gap of a twentieth of the span: then it is asked what Python function the host was in.
inline bool is_long_gap(int64_t gap_ns, int64_t span_ns) { return gap_ns * 20 >= span_ns; }

IdleCauses idle_causes(const Trace& trace, const Links& links, int32_t device, Interval span);

}  // namespace epilogue::trace
