// SPDX-License-Identifier: Apache-2.0
// Finds where one event ends and the next begins without reading what lies between: to cut a text
// into windows, and to get back on track behind an event that is broken.
#pragma once

#include <cstddef>
#include <string_view>

namespace epilogue::trace {

struct EventBoundary {
  enum class Kind { next_event, list_end, text_end, nowhere };
  Kind kind = Kind::nowhere;
  size_t event_end = 0;  // behind the closing brace
  size_t next = 0;       // the next event's opening brace; the list's closing bracket
};

// The first place from `from` on that reads `}, {"ph":` (with any key of an event), or `}]`
// followed by what may follow the list, or `},` and the text's end. In valid JSON the first is
// never inside a string, but may be inside an event's args.
EventBoundary find_event_boundary(std::string_view text, size_t from);

// The opening brace of the last event that starts behind such a `},`; 0 when there is none.
size_t find_last_cut(std::string_view text);

// The first brace in [from, to) that could open an event: {"ph": behind anything but a colon. `to`
// when there is none.
size_t find_event_start(std::string_view text, size_t from, size_t to);

// True when the bracket at `at` is followed by what may follow the list; false for a stray one.
bool is_list_end(std::string_view text, size_t at);

// Behind the brace that matches the one at `at`, strings left out; npos when there is none.
size_t find_matching_end(std::string_view text, size_t at);

// True when `text` starts like an event, {"ph":, as far as it goes.
bool starts_event(std::string_view text);

}  // namespace epilogue::trace
