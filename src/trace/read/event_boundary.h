// SPDX-License-Identifier: Apache-2.0
// Finds where one event ends and the next begins without reading what lies between: to cut a text
// into windows, and to get back on track behind an event that is broken.
#pragma once

#include <cstddef>
#include <string_view>

namespace epilogue::trace {

struct EventBoundary {
  enum class Kind { kNextEvent, kListEnd, kNowhere };
  Kind kind = Kind::kNowhere;
  size_t event_end = 0;  // behind the closing brace
  size_t next = 0;       // the next event's opening brace; the list's closing bracket
};

// The first place from `from` on that reads `}, {"ph":` (with any key of an event), or `}]` followed
// by what may follow the list; the end of the text counts as an event. In valid JSON the first is never inside a string, but may be inside
// an event's args.
EventBoundary find_event_boundary(std::string_view text, size_t from);

// The opening brace of the last event that starts behind such a `},`; 0 when there is none.
size_t find_last_cut(std::string_view text);

// True when `text` starts like an event: {"ph":
bool starts_event(std::string_view text);

}  // namespace epilogue::trace
