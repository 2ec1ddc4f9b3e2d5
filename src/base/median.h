// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

namespace epilogue {

// An even number of values gives the mean of the two in the middle. Precondition: `v` is not empty.
inline double median_of(std::vector<double> v) {
  const auto middle = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  if (v.size() % 2 == 1) return *middle;
  return std::midpoint(*std::max_element(v.begin(), middle), *middle);
}

}  // namespace epilogue
