// SPDX-License-Identifier: Apache-2.0
// Cheap time stamps for the recorder: raw ticks now, nanoseconds later.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace epilogue {

// Nanoseconds of the monotonic clock.
int64_t monotonic_ns();
// Nanoseconds since the Unix epoch.
int64_t realtime_ns();

// True when the processor's time-stamp counter runs at a constant rate and ticks() reads it.
bool ticks_are_tsc();

// A monotonic counter whose rate is constant: the TSC where it is invariant (about 10 ns a read),
// else the monotonic clock. Not serialising: neighbours may move by a few nanoseconds.
inline int64_t ticks() {
#if defined(__x86_64__)
  extern const bool kTicksAreTsc;
  if (kTicksAreTsc) return static_cast<int64_t>(__rdtsc());
#endif
  return monotonic_ns();
}

// Two readings of ticks() and the wall clock; everything between them is interpolated, so no
// calibration delays the start and the rate is that of the very run.
struct TickAnchor {
  int64_t ticks = 0;
  int64_t unix_ns = 0;
};
TickAnchor tick_anchor();

// Converts ticks to Unix nanoseconds along the line through two anchors. Anchors closer than 1 ms
// give a poor slope; the converter then uses the rate measured once per process (5 ms).
class TickConverter {
 public:
  TickConverter(TickAnchor begin, TickAnchor end);
  int64_t unix_ns(int64_t ticks) const;
  // A duration, in nanoseconds.
  double duration_ns(int64_t ticks) const { return static_cast<double>(ticks) * ns_per_tick_; }

 private:
  TickAnchor begin_;
  double ns_per_tick_;
};

}  // namespace epilogue
