// SPDX-License-Identifier: Apache-2.0
// The sentences that go with a verdict.
#pragma once

#include <array>
#include <numeric>
#include <string>
#include <vector>

#include "epilogue/trace/time.h"

namespace epilogue::trace {

// The wall time of a region, by TimePart.
struct PartTimes {
  std::array<int64_t, kTimeParts> ns = {};
  // Of kQueue: before the first work that the device is known of.
  int64_t queue_before_first_ns = 0;

  int64_t of(TimePart part) const { return ns[static_cast<size_t>(part)]; }
  int64_t wall_ns() const { return std::accumulate(ns.begin(), ns.end(), int64_t{0}); }
  int64_t device_ns() const { return of(TimePart::compute) + of(TimePart::memory); }
  // Verdict::judged_pct. 100 where the profiler took all of the time.
  double judged_pct() const;
};

// Time that a verdict may blame, by verdict. Verdicts on the device itself blame none.
struct IdlePart {
  Bound bound;
  int64_t ns;
  std::string_view what;  // "idle while the host was in the data loader"
};
std::array<IdlePart, 5> idle_parts(const PartTimes& times);

// Precondition: the wall time is not 0.
std::vector<std::string> time_evidence(Bound bound, const PartTimes& times, const Region& region,
                                       const ProfilerCost& profiler);
// For cpu-only and no-kernels.
std::vector<std::string> missing_evidence(Bound bound, const Region& region);

}  // namespace epilogue::trace
