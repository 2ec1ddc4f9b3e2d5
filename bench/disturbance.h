// SPDX-License-Identifier: Apache-2.0
// A shared machine's disturbances of a measurement, on purpose: a process beside it that streams
// memory, or one that keeps a core busy.
#pragma once

#include <sys/types.h>

#include <string_view>

namespace epilogue::bench {

enum class Disturbance : unsigned char { quiet, memory, busy_core };
inline constexpr Disturbance kDisturbances[] = {Disturbance::quiet, Disturbance::memory,
                                                Disturbance::busy_core};
// "quiet", "memory", "busy core".
std::string_view disturbance_name(Disturbance kind);

// The processes that disturb, stopped until a scope lets one go on. To be made before large memory
// is: a later fork would make this process copy what it writes. They stay on the last processor
// that this process may use, and end with it at the latest. Throws Error where they cannot be
// started.
class Disturbers {
 public:
  Disturbers();
  ~Disturbers();
  Disturbers(const Disturbers&) = delete;
  Disturbers& operator=(const Disturbers&) = delete;

 private:
  friend class DisturbanceScope;
  pid_t pid_of(Disturbance kind) const { return kind == Disturbance::memory ? memory_ : busy_; }
  pid_t memory_ = -1;
  pid_t busy_ = -1;
};

// One of them runs until the scope ends.
class DisturbanceScope {
 public:
  DisturbanceScope(const Disturbers& all, Disturbance kind);
  ~DisturbanceScope();
  DisturbanceScope(const DisturbanceScope&) = delete;
  DisturbanceScope& operator=(const DisturbanceScope&) = delete;

 private:
  pid_t pid_;
};

}  // namespace epilogue::bench
