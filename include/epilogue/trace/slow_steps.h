// SPDX-License-Identifier: Apache-2.0
// Steps that take far longer than the others, and what they spend the time on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "epilogue/trace/timeline.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

// Where a step's time goes beyond what the other steps spend there.
struct TimeAbove {
  std::string name;  // of the ops, or "time between ops"
  int64_t ns = 0;    // their own time on the host, less its mean over the steps that are not slow
};

struct SlowStep {
  std::string name;  // "ProfilerStep#3"
  int64_t wall_ns = 0;
  int64_t median_ns = 0;         // of all steps
  std::vector<TimeAbove> above;  // the most first, at most three; only of the longest slow steps
  // Nearly all ops take longer, not some: the machine had other work, or a lower clock.
  bool is_slower_throughout = false;
};

// A step is slow from this many medians on, where there are so many steps.
inline constexpr double kSlowStep = 1.5;
inline constexpr size_t kStepsToCompare = 3;

// By start. `steps` are those of the trace (timeline.h).
std::vector<SlowStep> slow_steps(const Trace& trace, const Links& links,
                                 const std::vector<Region>& steps);

}  // namespace epilogue::trace

#pragma GCC visibility pop
