// SPDX-License-Identifier: Apache-2.0
// Whether one sample's values are larger than another's, by their ranks alone.
#pragma once

#include <cstdint>
#include <span>

namespace epilogue::trace {

struct MannWhitney {
  // The chance of ranks that lie so far apart, or further, if both samples are of one distribution.
  double p_larger = 1;   // that `b` is larger than `a`
  double p_smaller = 1;  // that it is smaller
  bool is_exact = false;
  // How often a value of `b` exceeds one of `a`; equal ones count half. 0.5: no difference.
  double superiority = 0.5;
};

// At most this many values in all are judged by the exact distribution of their ranks, ties
// included; more by the normal approximation with its corrections for ties and continuity.
inline constexpr size_t kMostExactValues = 60;

// Precondition: neither is empty.
MannWhitney mann_whitney(std::span<const int64_t> a, std::span<const int64_t> b);

// The smallest p that samples of these sizes can give.
double smallest_p(size_t a, size_t b);

// The median of all differences of a value of `b` and one of `a` (Hodges and Lehmann): how much
// larger `b` is. Precondition: neither is empty.
double median_difference(std::span<const int64_t> a, std::span<const int64_t> b);

}  // namespace epilogue::trace
