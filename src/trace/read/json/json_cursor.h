// SPDX-License-Identifier: Apache-2.0
// Walks the tokens of a JSON text. Values are views of the text; nothing is decoded or checked
// beyond what the walk needs.
#pragma once

#include <cstdint>
#include <string_view>

namespace epilogue::trace {

// A position in a list of tokens. Copy it to look ahead. Behind the last token peek() is '\0'.
class JsonCursor {
 public:
  // As TokenIndex::build() left them.
  JsonCursor(const char* text, const uint32_t* tokens, size_t count)
      : text_(text), at_(tokens), end_(tokens + count) {}

  bool at_end() const { return at_ == end_; }
  char peek() const { return at_ == end_ ? '\0' : text_[*at_]; }
  uint32_t offset() const { return *at_; }  // at the end: the size of the text
  void skip() { ++at_; }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }

  // "key": -> key, as it is written. False when there is none.
  bool take_key(std::string_view& key) {
    if (peek() != '"') return false;
    if (end_ - at_ < 2) {  // not complete: at_end() must tell it from broken
      at_ = end_;
      return false;
    }
    if (text_[at_[1]] != ':') return false;
    const std::string_view quoted = trimmed(at_[0], at_[1]);
    if (quoted.size() < 2 || quoted.back() != '"') return false;
    key = quoted.substr(1, quoted.size() - 2);
    at_ += 2;
    return true;
  }

  // The text of any value, strings with their quotes. False when none is complete here.
  bool take_value(std::string_view& value) {
    const char first = peek();
    if (first == '{' || first == '[') return take_container(value);
    if (first == '\0' || first == '}' || first == ']' || first == ',' || first == ':') return false;
    value = trimmed(at_[0], at_[1]);
    ++at_;
    return first != '"' || (value.size() >= 2 && value.back() == '"');
  }

 private:
  std::string_view trimmed(uint32_t from, uint32_t to) const {
    while (to > from && static_cast<unsigned char>(text_[to - 1]) <= ' ') --to;
    return {text_ + from, to - from};
  }

  bool take_container(std::string_view& value) {
    const uint32_t from = *at_;
    int64_t depth = 0;
    for (; at_ != end_; ++at_) {
      const char c = text_[*at_];
      if (c == '{' || c == '[') ++depth;
      if ((c == '}' || c == ']') && --depth == 0) {
        value = {text_ + from, *at_ + 1 - from};
        ++at_;
        return true;
      }
    }
    return false;
  }

  const char* text_;
  const uint32_t* at_;
  const uint32_t* end_;
};

// Calls each(key, value) for the members of the object at the cursor. False when it is broken or
// not complete; a comma too many is none of both and sets `has_extra_comma`.
template <class Each>
bool for_each_member(JsonCursor& cursor, bool& has_extra_comma, Each each) {
  if (!cursor.take('{')) return false;
  if (cursor.take('}')) return true;
  while (true) {
    std::string_view key;
    std::string_view value;
    if (!cursor.take_key(key) || !cursor.take_value(value)) return false;
    each(key, value);
    if (cursor.take('}')) return true;
    if (!cursor.take(',')) return false;
    if (cursor.take('}')) {
      has_extra_comma = true;
      return true;
    }
  }
}

}  // namespace epilogue::trace
