// SPDX-License-Identifier: Apache-2.0
// What changes over time, as [[us, value], ...].
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "explain/sections/section.h"

namespace epilogue::trace {

// The highest and the last point of each bucket of points: what a plot of so many pixels shows.
template <class Point>
nlohmann::ordered_json curve_json(const std::vector<Point>& curve, size_t buckets,
                                  int64_t Point::*value) {
  const size_t step = std::max<size_t>(1, curve.size() / buckets);
  auto points = nlohmann::ordered_json::array();
  const auto add = [&](const Point& p) { points.push_back({to_us(p.ts_ns), p.*value}); };
  for (size_t from = 0; from < curve.size(); from += step) {
    const auto first = curve.begin() + static_cast<ptrdiff_t>(from);
    const auto end = curve.begin() + static_cast<ptrdiff_t>(std::min(from + step, curve.size()));
    const auto top = std::max_element(
        first, end, [&](const Point& a, const Point& b) { return a.*value < b.*value; });
    add(*top);
    if (top != end - 1) add(*(end - 1));
  }
  return points;
}

}  // namespace epilogue::trace
