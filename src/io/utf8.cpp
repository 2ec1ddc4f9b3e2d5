// SPDX-License-Identifier: Apache-2.0
#include "io/utf8.h"

#include <algorithm>
#include <cstdint>

namespace epilogue::io {
namespace {

constexpr unsigned kAscii = 0x80;

unsigned byte_at(std::string_view text, size_t i) {
  return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
}

// The bytes of the character at `i`; 0: none begins there.
size_t character_bytes(std::string_view text, size_t i) {
  const unsigned first = byte_at(text, i);
  if (first < kAscii) return 1;
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  for (size_t k = 1; k < bytes; ++k)
    if ((byte_at(text, i + k) & 0xc0) != 0x80) return 0;
  const unsigned second = byte_at(text, i + 1);
  const bool is_bad = (first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0) ||
                      (first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90);
  return is_bad ? 0 : bytes;
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < kAscii; });
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t bytes = character_bytes(text, i);
    if (bytes == 0) return false;
    i += bytes;
  }
  return true;
}

void append_as_utf8(std::string& to, std::string_view text) {
  if (is_ascii(text) || is_utf8(text)) {
    to += text;
    return;
  }
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < kAscii) {
      to += c;
    } else {
      to += static_cast<char>(0xc0 | byte >> 6);
      to += static_cast<char>(0x80 | (byte & 0x3f));
    }
  }
}

}  // namespace epilogue::io
