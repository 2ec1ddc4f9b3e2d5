// SPDX-License-Identifier: Apache-2.0
// Sets of moments, as sorted disjoint intervals. Everything said of busy and idle time is set
// algebra on these; all operations are linear, but for the sort in united().
#pragma once

#include <cstdint>
#include <vector>

namespace epilogue::trace {

// [begin, end). One that does not end after it begins is empty.
struct Interval {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;

  int64_t length_ns() const { return end_ns > begin_ns ? end_ns - begin_ns : 0; }
  bool operator==(const Interval&) const = default;
};

// Sorted, disjoint, not touching, none empty.
using IntervalSet = std::vector<Interval>;

// The moments covered by at least one interval. Any order, any overlap.
IntervalSet united(std::vector<Interval> intervals);
int64_t total_ns(const IntervalSet& set);
IntervalSet intersected(const IntervalSet& a, const IntervalSet& b);
// The moments in `a` and not in `b`.
IntervalSet subtracted(const IntervalSet& a, const IntervalSet& b);
// The moments in `window` and not in `set`.
IntervalSet gaps(const IntervalSet& set, Interval window);

// Answers how much of a window a set covers, in O(log n).
class Coverage {
 public:
  explicit Coverage(const IntervalSet& set);
  int64_t within_ns(Interval window) const;
  bool contains(int64_t ts_ns) const;

 private:
  int64_t before_ns(int64_t ts_ns) const;  // covered time before a moment

  const IntervalSet& set_;
  std::vector<int64_t> sums_;  // covered time before each interval
};

}  // namespace epilogue::trace
