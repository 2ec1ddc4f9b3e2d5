// SPDX-License-Identifier: Apache-2.0
#include "epilogue/base/distribution.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace epilogue {
namespace {

// The smallest value that `percent` of all do not exceed.
int64_t nearest_rank(const std::vector<int64_t>& sorted, size_t percent) {
  const size_t rank = (sorted.size() * percent + 99) / 100;
  return sorted[std::max<size_t>(rank, 1) - 1];
}

int64_t middle(const std::vector<int64_t>& sorted) {
  return std::midpoint(sorted[(sorted.size() - 1) / 2], sorted[sorted.size() / 2]);
}

// A trace may claim any durations: what does not fit ends at the type's last number.
int64_t sum_of(const std::vector<int64_t>& values) {
  int64_t sum = 0;
  for (const int64_t value : values)
    if (__builtin_add_overflow(sum, value, &sum))
      return value > 0 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
  return sum;
}

}  // namespace

std::optional<Distribution> distribution(std::vector<int64_t> values_ns) {
  if (values_ns.empty()) return std::nullopt;
  std::sort(values_ns.begin(), values_ns.end());
  Distribution d;
  d.count = static_cast<int64_t>(values_ns.size());
  d.min_ns = values_ns.front();
  d.median_ns = middle(values_ns);
  d.p95_ns = nearest_rank(values_ns, 95);
  d.max_ns = values_ns.back();
  d.total_ns = sum_of(values_ns);
  return d;
}

}  // namespace epilogue
