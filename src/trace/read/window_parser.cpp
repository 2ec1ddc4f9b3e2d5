// SPDX-License-Identifier: Apache-2.0
#include "trace/read/window_parser.h"

#include <algorithm>
#include <optional>

#include "trace/read/event_boundary.h"
#include "trace/read/repair.h"

namespace epilogue::trace {
namespace {

constexpr size_t kIncomplete = std::string_view::npos;
// An event's args may hold what looks like the end of an event.
constexpr int kMaxTries = 4;

}  // namespace

void WindowParser::parse(std::string_view text, int64_t offset, bool is_final,
                         WindowResult& result) {
  text_ = text;
  offset_ = offset;
  is_final_ = is_final;
  result.partial.clear();
  result.used = 0;
  result.is_list_closed = false;
  events_.start_window(result.partial);
  if (!parse_indexed(result)) parse_one_by_one(result);
  events_.finish_window();
}

// False where something is broken: result.used is then where.
bool WindowParser::parse_indexed(WindowResult& result) {
  if (!index_.build(text_)) return false;
  // The index says where the text ends. NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage)
  JsonCursor cursor(text_.data(), index_.begin(), index_.size());
  while (!cursor.at_end()) {
    result.used = cursor.offset();
    const char c = cursor.peek();
    if (c == ',') {
      cursor.skip();
      if (cursor.peek() == ']')
        result.partial.notes.add(Note::extra_comma, offset_ + cursor.offset());
    } else if (c == ']' && is_list_end(text_, result.used)) {
      ++result.used;
      result.is_list_closed = true;
      return true;
    } else if (c == '{') {
      if (!events_.parse(cursor, offset_ + cursor.offset())) return cursor.at_end() && !is_final_;
    } else {
      std::string_view value;
      if (c == ']') {
        cursor.skip();
      } else if (!cursor.take_value(value)) {
        return cursor.at_end() && !is_final_;
      }
      result.partial.notes.add(Note::not_an_object, offset_ + static_cast<int64_t>(result.used));
    }
  }
  result.used = text_.size();
  return true;
}

void WindowParser::parse_one_by_one(WindowResult& result) {
  while (true) {
    const size_t at = std::min(text_.find_first_not_of(" \t\r\n,", result.used), text_.size());
    result.used = at;
    if (at == text_.size()) return;
    if (text_[at] == ']' && is_list_end(text_, at)) {
      ++result.used;
      result.is_list_closed = true;
      return;
    }
    size_t end = 0;
    if (text_[at] == '{') {
      end = parse_slow(result.partial, at);
    } else {
      result.partial.notes.add(Note::not_an_object, offset_ + static_cast<int64_t>(at));
      end = std::min(text_.find_first_of("{]", at + 1), text_.size());
    }
    if (end == kIncomplete) return;
    result.used = end;
  }
}

// Reads the event at `at` by looking for its end first. Returns where to go on.
size_t WindowParser::parse_slow(Partial& partial, size_t at) {
  using Kind = EventBoundary::Kind;
  const int64_t offset = offset_ + static_cast<int64_t>(at);
  size_t list_end = 0;
  size_t from = at + 1;
  bool is_last = false;
  for (int i = 0; i < kMaxTries && !is_last; ++i) {
    const EventBoundary boundary = find_event_boundary(text_, from);
    if (i == 0) {
      // Where the next event's start is broken, this one may still be whole.
      const size_t match = find_matching_end(text_.substr(0, boundary.event_end), at);
      if (match < boundary.event_end) {
        slice_ = text_.substr(at, match - at);
        if (parse_valid(slice_, offset)) return match;
      }
    }
    is_last = boundary.kind == Kind::nowhere || boundary.kind == Kind::text_end;
    if (boundary.kind == Kind::nowhere && !is_final_) return kIncomplete;
    if (parse_slice(partial, text_.substr(at, boundary.event_end - at), offset))
      return boundary.event_end;
    if (is_last && !is_final_) return kIncomplete;
    if (boundary.kind == Kind::list_end) list_end = boundary.event_end;
    from = boundary.event_end;
  }
  // Where its own end is broken, the end that was found is another event's.
  const size_t next = find_event_start(text_, at + 1, from);
  const bool is_truncated = is_last && next == text_.size() && list_end == 0;
  partial.notes.add(is_truncated ? Note::truncated : Note::bad_syntax, offset);
  return next == from && list_end > 0 ? list_end : next;
}

bool WindowParser::parse_slice(Partial& partial, std::string_view slice, int64_t offset) {
  slice_ = slice;
  if (parse_valid(slice_, offset)) return true;
  ImportNotes notes;
  const std::optional<std::string> repaired = repair_event(slice, offset, notes);
  if (!repaired || !parse_valid(*repaired, offset)) return false;
  partial.notes.add_all(notes);
  return true;
}

bool WindowParser::parse_valid(const std::string& slice, int64_t offset) {
  if (!index_.build(slice)) return false;
  JsonCursor cursor(slice.data(), index_.begin(), index_.size());
  JsonCursor ahead = cursor;
  std::string_view value;
  // All of it must be one object before any of it counts.
  if (!ahead.take_value(value)) return false;
  while (ahead.take(',')) {
  }
  return ahead.at_end() && events_.parse(cursor, offset);
}

}  // namespace epilogue::trace
