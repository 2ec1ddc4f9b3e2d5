// SPDX-License-Identifier: Apache-2.0
// Places the events of a trace on lanes (a host thread, a device's stream) and rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

struct TimelineLane {
  int64_t pid = 0;
  int64_t tid = 0;
  bool is_device = false;
  std::string name;
  // Events by start. A row is as deep as spans are open around it, so spans that nest lie below
  // each other and spans that overlap in part do not cover each other.
  std::vector<std::vector<uint32_t>> rows;
};

struct TimelineRows {
  std::vector<TimelineLane> lanes;  // host threads, the fullest first; then devices by number
  int64_t left_out = 0;             // the shortest, above the limit
};

TimelineRows timeline_rows(const Trace& trace, size_t max_events);

}  // namespace epilogue::trace
