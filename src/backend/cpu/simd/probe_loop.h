// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace epilogue::simd {

// GFLOP/s of the best of short runs of `flops` each within about `seconds`. Many runs whatever the
// budget: one that the scheduler interrupts tells nothing.
template <class Run>
double best_gflops(double seconds, int64_t flops, Run&& run) {
  constexpr int kFewest = 64;
  const int64_t start = monotonic_ns();
  const auto budget_ns = static_cast<int64_t>(seconds * 1e9);
  double best = 0.0;
  for (int i = 0; i < kFewest || monotonic_ns() - start < budget_ns; ++i) {
    const int64_t before = monotonic_ns();
    run();
    const auto took_ns = static_cast<double>(std::max<int64_t>(monotonic_ns() - before, 1));
    best = std::max(best, static_cast<double>(flops) / took_ns);
  }
  return best;
}

}  // namespace epilogue::simd
