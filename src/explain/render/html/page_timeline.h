// SPDX-License-Identifier: Apache-2.0
// The events of a trace as the page's timeline draws them: rows of spans that do not overlap.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

namespace epilogue::trace {

// Above this the shortest events are left out, and the page says so.
inline constexpr size_t kMaxTimelineEvents = 1'000'000;

struct PageTimeline {
  // {"origin_us", "events", "left_out", "strings", "details", "lanes": [{"name", "is_device",
  // "calls_lane": the lane of its thread's launch calls or null, "rows": [events of row 0, ...]}]}
  nlohmann::ordered_json header;
  // One column after the other, `events` values each, LEB128 varints: category, name (in strings),
  // detail (in details), op and launch (position + 1, 0: none), duration in ns, start in ns
  // (zigzag, relative to the end of the event before it in its row, the first one's to the origin).
  // Events are sorted by lane, row, start.
  std::string columns;
};

// `origin_ns` is where the page's time 0 is.
PageTimeline page_timeline(const Trace& trace, const Links& links, int64_t origin_ns,
                           size_t max_events = kMaxTimelineEvents);

}  // namespace epilogue::trace
