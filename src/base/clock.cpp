// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <chrono>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace epilogue {
namespace {

bool has_invariant_tsc() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0x80000000U, &a, &b, &c, &d) == 0 || a < 0x80000007U) return false;
  __get_cpuid(0x80000007U, &a, &b, &c, &d);
  // Hypervisors often hide the invariant bit although the counter is constant; where it is hidden
  // we take the slower clock rather than trust it.
  return (d & (1U << 8)) != 0;
#else
  return false;
#endif
}

double measured_ns_per_tick() {
  static const double rate = [] {
    const TickAnchor a = tick_anchor();
    const int64_t start = monotonic_ns();
    while (monotonic_ns() - start < 5'000'000) {
    }
    const TickAnchor b = tick_anchor();
    return static_cast<double>(b.unix_ns - a.unix_ns) / static_cast<double>(b.ticks - a.ticks);
  }();
  return rate;
}

}  // namespace

extern const bool kTicksAreTsc = has_invariant_tsc();
bool ticks_are_tsc() { return kTicksAreTsc; }

int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int64_t realtime_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

TickAnchor tick_anchor() {
  // The best of a few tries: an interrupt between the two reads would skew the line.
  TickAnchor best;
  int64_t best_gap = INT64_MAX;
  for (int i = 0; i < 5; ++i) {
    const int64_t before = ticks();
    const int64_t wall = realtime_ns();
    const int64_t after = ticks();
    if (after - before < best_gap) {
      best_gap = after - before;
      best = {before + (after - before) / 2, wall};
    }
  }
  return best;
}

TickConverter::TickConverter(TickAnchor begin, TickAnchor end) : begin_(begin) {
  const int64_t ns = end.unix_ns - begin.unix_ns;
  const int64_t dt = end.ticks - begin.ticks;
  ns_per_tick_ = ns >= 1'000'000 && dt > 0 ? static_cast<double>(ns) / static_cast<double>(dt)
                                           : measured_ns_per_tick();
}

int64_t TickConverter::unix_ns(int64_t ticks) const {
  return begin_.unix_ns +
         static_cast<int64_t>(static_cast<double>(ticks - begin_.ticks) * ns_per_tick_);
}

}  // namespace epilogue
