// SPDX-License-Identifier: Apache-2.0
#include "explain/render/utf8.h"

#include <algorithm>

namespace epilogue::trace {
namespace {

bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

std::string spaces_to(std::string_view text, size_t n) {
  const size_t length = utf8_length(text);
  return std::string(length < n ? n - length : 0, ' ');
}

}  // namespace

size_t utf8_length(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), starts_character));
}

std::string_view utf8_prefix(std::string_view text, size_t n) {
  size_t end = 0;
  while (end < text.size() && (!starts_character(text[end]) || n-- > 0)) ++end;
  return text.substr(0, end);
}

std::string_view utf8_suffix(std::string_view text, size_t n) {
  const size_t length = utf8_length(text);
  return length <= n ? text : text.substr(utf8_prefix(text, length - n).size());
}

std::string pad_left(std::string_view text, size_t n) { return spaces_to(text, n).append(text); }
std::string pad_right(std::string_view text, size_t n) {
  return std::string(text) + spaces_to(text, n);
}

}  // namespace epilogue::trace
