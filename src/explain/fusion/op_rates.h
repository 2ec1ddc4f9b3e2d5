// SPDX-License-Identifier: Apache-2.0
// What a trace tells of the rate at which its ops move their bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "explain/fusion/dataflow.h"

namespace epilogue::trace {

// Shorter runs measure latency, not bandwidth.
inline constexpr int64_t kMinTimedNs = 5'000;
inline constexpr double kBandwidthQuantile = 0.9;

// Read and written. Nothing where a shape is not known.
std::optional<double> moved_bytes(const WorkOp& op);

// The value below which a share `q` of the values lies; 0 of none. Reorders them.
inline double quantile(std::vector<double>& values, double q) {
  if (values.empty()) return 0;
  const auto at = static_cast<ptrdiff_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

}  // namespace epilogue::trace
