// SPDX-License-Identifier: Apache-2.0
#include "explain/index/intervals.h"

#include <algorithm>

namespace epilogue::trace {

IntervalSet united(std::vector<Interval> intervals) {
  std::erase_if(intervals, [](const Interval& i) { return i.end_ns <= i.begin_ns; });
  const auto starts_before = [](const Interval& a, const Interval& b) {
    return a.begin_ns < b.begin_ns;
  };
  if (!std::is_sorted(intervals.begin(), intervals.end(), starts_before))
    std::sort(intervals.begin(), intervals.end(), starts_before);
  size_t kept = 0;  // merged in place: what is written is behind what is read
  for (const Interval& i : intervals) {
    if (kept > 0 && i.begin_ns <= intervals[kept - 1].end_ns) {
      intervals[kept - 1].end_ns = std::max(intervals[kept - 1].end_ns, i.end_ns);
    } else {
      intervals[kept++] = i;
    }
  }
  intervals.resize(kept);
  return intervals;
}

int64_t total_ns(const IntervalSet& set) {
  int64_t total = 0;
  for (const Interval& i : set) total += i.length_ns();
  return total;
}

IntervalSet intersected(const IntervalSet& a, const IntervalSet& b) {
  IntervalSet both;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Interval common = {std::max(a[i].begin_ns, b[j].begin_ns),
                             std::min(a[i].end_ns, b[j].end_ns)};
    if (common.length_ns() > 0) both.push_back(common);
    a[i].end_ns < b[j].end_ns ? ++i : ++j;
  }
  return both;
}

IntervalSet subtracted(const IntervalSet& a, const IntervalSet& b) {
  IntervalSet rest;
  size_t j = 0;
  for (Interval i : a) {
    while (j < b.size() && b[j].end_ns <= i.begin_ns) ++j;
    // The last of these may reach into the next interval of `a`: j stays on it.
    for (; j < b.size() && b[j].begin_ns < i.end_ns; ++j) {
      if (b[j].begin_ns > i.begin_ns) rest.push_back({i.begin_ns, b[j].begin_ns});
      i.begin_ns = b[j].end_ns;
      if (b[j].end_ns >= i.end_ns) break;
    }
    if (i.length_ns() > 0) rest.push_back(i);
  }
  return rest;
}

IntervalSet gaps(const IntervalSet& set, Interval window) {
  if (window.length_ns() == 0) return {};
  return subtracted({window}, set);
}

Coverage::Coverage(const IntervalSet& set) : set_(set) {
  sums_.reserve(set.size());
  int64_t sum = 0;
  for (const Interval& i : set) {
    sums_.push_back(sum);
    sum += i.length_ns();
  }
}

int64_t Coverage::before_ns(int64_t ts_ns) const {
  const auto after =
      std::upper_bound(set_.begin(), set_.end(), ts_ns,
                       [](int64_t ts, const Interval& i) { return ts < i.begin_ns; });
  if (after == set_.begin()) return 0;
  const auto last = static_cast<size_t>(after - set_.begin()) - 1;
  return sums_[last] + std::min(ts_ns, set_[last].end_ns) - set_[last].begin_ns;
}

int64_t Coverage::within_ns(Interval window) const {
  return window.length_ns() == 0 ? 0 : before_ns(window.end_ns) - before_ns(window.begin_ns);
}

bool Coverage::contains(int64_t ts_ns) const {
  const auto after =
      std::upper_bound(set_.begin(), set_.end(), ts_ns,
                       [](int64_t ts, const Interval& i) { return ts < i.begin_ns; });
  return after != set_.begin() && ts_ns < std::prev(after)->end_ns;
}

}  // namespace epilogue::trace
