// SPDX-License-Identifier: Apache-2.0

#include "trace/read/window_parser.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <optional>
#include <string>
#include <string_view>

#include "trace/json_text.h"
#include "trace/read/event_boundary.h"
#include "trace/read/import_notes.h"
#include "trace/read/json/json_string.h"
#include "trace/read/json/number_text.h"
#include "trace/read/white_space.h"

namespace epilogue::trace {

namespace {

constexpr std::string_view kReplacementText = "\xEF\xBF\xBD";
constexpr std::array<std::string_view, 11> kKeysOfEvents = {
    "ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id", "bp", "s"};
// Longer than any key that a trace has.
constexpr size_t kMaxKey = 80;

class Repairer {
 public:
  explicit Repairer(std::string_view text) : text_(text) { out_.reserve(text.size() + 16); }

  bool run() {
    do {
      if (at_ >= text_.size() || !step()) return false;
    } while (!open_.empty());
    return text_.find_first_not_of(" \t\r\n,", at_) == std::string_view::npos;
  }
  std::string take_text() { return std::move(out_); }
  const std::bitset<kNotes>& found() const { return found_; }

 private:
  void note(Note note) { found_.set(static_cast<size_t>(note)); }
  char char_at(size_t i) const { return i < text_.size() ? text_[i] : '\0'; }
  size_t skip_space(size_t i) const {
    return std::min(text_.find_first_not_of(kSpace, i), text_.size());
  }
  char last() const { return out_.empty() ? '\0' : out_.back(); }

  bool step() {
    const char c = text_[at_];
    if (static_cast<unsigned char>(c) <= ' ') {
      ++at_;
      return true;
    }
    if (open_.empty() && c != '{') return false;
    switch (c) {
      case '{':
      case '[':
        open_ += c;
        out_ += c;
        ++at_;
        return true;
      case '}':
      case ']': return close(c);
      case ',': return comma();
      case ':':
        out_ += c;
        ++at_;
        return true;
      case '"': return string();
      default: return word();
    }
  }

  bool close(char c) {
    if (open_.back() != (c == '}' ? '{' : '[')) return false;
    if (last() == ',') {
      out_.pop_back();
      note(Note::extra_comma);
    }
    open_.pop_back();
    out_ += c;
    ++at_;
    return true;
  }

  bool comma() {
    if (last() == ',' || last() == '{' || last() == '[') {
      note(Note::extra_comma);
    } else {
      out_ += ',';
    }
    ++at_;
    return true;
  }

  bool word() {
    const size_t end = std::min(text_.find_first_of(",:]}[{\" \t\r\n", at_), text_.size());
    const std::string_view word = text_.substr(at_, end - at_);
    at_ = end;
    const bool is_known = word == "true" || word == "false" || word == "null";
    const bool is_number = word.find_first_not_of("+-.0123456789eE") == std::string_view::npos &&
                           parse_real(word).has_value();
    if (!is_known && !is_number) note(Note::bare_word);
    out_ += is_known || is_number ? word : "null";
    return true;
  }

  // The strings of an event: at depth 1 its own members, below that its args'.
  bool string() {
    const bool is_key = open_.back() == '{' && (last() == '{' || last() == ',');
    const size_t end = find_end(is_key);
    if (end == std::string_view::npos) return false;
    append_string(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return true;
  }

  size_t find_end(bool is_key) const {
    for (size_t i = at_ + 1; i < text_.size(); ++i) {
      if (text_[i] == '\\') {
        ++i;
      } else if (text_[i] == '"' && closes(i + 1, is_key)) {
        return i;
      }
    }
    return std::string_view::npos;
  }

  // Could the string end in front of `i`? What follows must fit its place.
  bool closes(size_t i, bool is_key) const {
    i = skip_space(i);
    const char c = char_at(i);
    if (is_key) return c == ':';
    if (open_.back() == '[') return c == ',' || c == ']';
    if (c == ',') {
      const size_t next = skip_space(i + 1);
      return char_at(next) == '}' || starts_key(next, open_.size());
    }
    return c == '}' && closes_object(i + 1, open_.size());
  }

  // After the closing brace of an object at that depth.
  bool closes_object(size_t i, size_t depth) const {
    i = skip_space(i);
    const char c = char_at(i);
    if (depth <= 1) return c == '\0' || c == ',' || c == ']';
    if (c == ',') return starts_key(skip_space(i + 1), depth - 1);
    return c == '}' || c == ']';
  }

  bool starts_key(size_t i, size_t depth) const {
    if (char_at(i) != '"') return false;
    const size_t end = text_.find('"', i + 1);
    if (end == std::string_view::npos || end - i > kMaxKey) return false;
    if (char_at(skip_space(end + 1)) != ':') return false;
    const std::string_view key = text_.substr(i + 1, end - i - 1);
    return depth > 1 ||
           std::find(kKeysOfEvents.begin(), kKeysOfEvents.end(), key) != kKeysOfEvents.end();
  }

  void append_string(std::string_view inside) {
    const bool is_literal = has_bad_escape(inside);
    if (is_literal) note(Note::bad_escape);
    if (std::any_of(inside.begin(), inside.end(),
                    [](char c) { return static_cast<unsigned char>(c) < 0x20; }))
      note(Note::control_character);
    for (size_t i = 0; i < inside.size(); i += inside[i] == '\\' ? 2 : 1)
      if (inside[i] == '"') note(Note::unescaped_quote);
    std::string plain;
    // Whoever wrote one bad escape did not escape at all: C:\new\dir has no line break.
    if (is_literal) {
      plain = inside;
    } else {
      append_decoded(plain, inside);
    }
    const size_t start = out_.size();
    append_json_string(out_, plain);
    if (plain.find(kReplacementText) == std::string::npos &&
        out_.find(kReplacementText, start) != std::string::npos)
      note(Note::bad_utf8);
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string open_;  // brackets, outermost first
  std::string out_;
  std::bitset<kNotes> found_;
};

// The object at the start of `text` as valid JSON; nothing when it cannot be mended. Quotes inside
// strings, control characters, bytes that are not UTF-8, backslashes that escape nothing, bare
// words, commas too many: each kind is noted once, at `offset`. Behind the object there may be
// white space and a comma.
std::optional<std::string> repair_event(std::string_view text, int64_t offset, ImportNotes& notes) {
  Repairer repairer(text);
  if (!repairer.run()) return std::nullopt;
  for (size_t i = 0; i < kNotes; ++i)
    if (repairer.found()[i]) notes.add(static_cast<Note>(i), offset);
  return repairer.take_text();
}

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
