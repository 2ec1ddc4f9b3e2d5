// SPDX-License-Identifier: Apache-2.0
// Places the events of a trace on lanes and rows. A lane is a host thread, a device's stream, or
// the Python frames of a thread: their stacks are so deep that devices would lie out of sight below
// them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

enum class LaneKind : uint8_t { host, device, python };

struct TimelineLane {
  LaneKind kind = LaneKind::host;
  int64_t pid = 0;
  int64_t tid = 0;
  std::string name;
  // Events by start. A row is as deep as spans are open around it, so spans that nest lie below
  // each other and spans that overlap in part do not cover each other.
  std::vector<std::vector<uint32_t>> rows;
};

struct TimelineRows {
  // Host threads, the fullest first; devices by number; Python, the fullest first.
  std::vector<TimelineLane> lanes;
  int64_t left_out = 0;  // the shortest, above the limit
};

TimelineRows timeline_rows(const Trace& trace, size_t max_events);

}  // namespace epilogue::trace
