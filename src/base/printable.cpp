// SPDX-License-Identifier: Apache-2.0
#include "base/printable.h"

#include <fmt/format.h>

#include <iterator>

namespace epilogue {
namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// C0, DEL, and C1 (U+0080..U+009F, which terminals obey too) as UTF-8.
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (first < 0x20 || first == 0x7F) return true;
  return first == 0xC2 && character.size() > 1 && static_cast<unsigned char>(character[1]) < 0xA0;
}

}  // namespace

std::string printable(std::string_view text, size_t max_chars) {
  std::string out;
  size_t chars = 0;
  for (size_t i = 0; i < text.size(); ++chars) {
    if (chars == max_chars) return out + "...";
    size_t end = i + 1;
    while (end < text.size() && end - i < 4 && is_continuation(text[end])) ++end;
    const std::string_view character = text.substr(i, end - i);
    if (is_control(character)) {
      for (const char c : character)
        fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += character;
    }
    i = end;
  }
  return out;
}

}  // namespace epilogue
