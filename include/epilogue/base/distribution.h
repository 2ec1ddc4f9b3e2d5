// SPDX-License-Identifier: Apache-2.0
// How a set of times spreads.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#pragma GCC visibility push(default)

namespace epilogue {

struct Distribution {
  int64_t count = 0;
  int64_t min_ns = 0;
  int64_t median_ns = 0;  // of two in the middle their mean, in whole ns
  int64_t p95_ns = 0;     // nearest rank: at least 95 % are not above it
  int64_t max_ns = 0;
  int64_t total_ns = 0;  // at most what 64 bits hold
};

// Empty where there are no values.
std::optional<Distribution> distribution(std::vector<int64_t> values_ns);

}  // namespace epilogue

#pragma GCC visibility pop
