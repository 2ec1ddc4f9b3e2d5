// SPDX-License-Identifier: Apache-2.0
#include "trace/read/event_boundary.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "trace/read/white_space.h"

namespace epilogue::trace {
namespace {

// "id" is left out: it is also the first key of deviceProperties' elements.
constexpr std::array<std::string_view, 8> kEventKeys = {"ph",  "cat", "name", "pid",
                                                        "tid", "ts",  "dur",  "args"};

char char_at(std::string_view text, size_t at) { return at < text.size() ? text[at] : '\0'; }

// The kind of text behind a closing brace at `brace`.
EventBoundary boundary_at(std::string_view text, size_t brace) {
  EventBoundary found{.event_end = brace + 1};
  size_t at = skip_space(text, brace + 1);
  const bool has_comma = char_at(text, at) == ',';
  if (has_comma) at = skip_space(text, at + 1);
  found.next = at;
  if (has_comma && at == text.size()) {
    found.kind = EventBoundary::Kind::text_end;
  } else if (has_comma && starts_event(text.substr(at))) {
    found.kind = EventBoundary::Kind::next_event;
  } else if (char_at(text, at) == ']') {
    const size_t behind = skip_space(text, at + 1);
    const char c = char_at(text, behind);
    const bool closes =
        c == '\0' || c == '}' || (c == ',' && char_at(text, skip_space(text, behind + 1)) == '"');
    if (closes) found.kind = EventBoundary::Kind::list_end;
  }
  return found;
}

}  // namespace

bool starts_event(std::string_view text) {
  if (char_at(text, 0) != '{') return false;
  const size_t quote = skip_space(text, 1);
  if (quote == text.size()) return true;
  if (text[quote] != '"') return false;
  const std::string_view key = text.substr(quote + 1);
  return std::any_of(kEventKeys.begin(), kEventKeys.end(), [&](std::string_view candidate) {
    if (key.size() <= candidate.size()) return candidate.starts_with(key);
    if (!key.starts_with(candidate) || key[candidate.size()] != '"') return false;
    const size_t colon = skip_space(key, candidate.size() + 1);
    return colon == key.size() || key[colon] == ':';
  });
}

bool is_list_end(std::string_view text, size_t at) {
  size_t next = skip_space(text, at + 1);
  const bool has_comma = char_at(text, next) == ',';
  if (has_comma) next = skip_space(text, next + 1);
  const char c = char_at(text, next);
  if (c == '\0' || c == '}' || c == '[') return true;
  return c == '{' ? !starts_event(text.substr(next)) : has_comma && c == '"';
}

size_t find_matching_end(std::string_view text, size_t at) {
  int64_t depth = 0;
  bool in_string = false;
  for (size_t i = at; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && --depth == 0) {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

EventBoundary find_event_boundary(std::string_view text, size_t from) {
  for (size_t brace = text.find('}', from); brace != std::string_view::npos;
       brace = text.find('}', brace + 1)) {
    const EventBoundary found = boundary_at(text, brace);
    if (found.kind != EventBoundary::Kind::nowhere) return found;
  }
  return {.kind = EventBoundary::Kind::nowhere, .event_end = text.size(), .next = text.size()};
}

size_t find_event_start(std::string_view text, size_t from, size_t to) {
  size_t before = 0;  // the last character that is no space
  for (size_t i = from; i < to; ++i) {
    if (text[i] == '{' && text[before] != ':' && starts_event(text.substr(i))) return i;
    if (kSpace.find(text[i]) == std::string_view::npos) before = i;
  }
  return to;
}

size_t find_last_cut(std::string_view text) {
  for (size_t brace = text.rfind('}'); brace != std::string_view::npos && brace > 0;
       brace = text.rfind('}', brace - 1)) {
    const EventBoundary found = boundary_at(text, brace);
    if (found.kind == EventBoundary::Kind::next_event) return found.next;
  }
  return 0;
}

}  // namespace epilogue::trace
