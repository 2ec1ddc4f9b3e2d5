// SPDX-License-Identifier: Apache-2.0
#include "trace/read/json/json_string.h"

#include <charconv>
#include <cstdint>
#include <optional>

namespace epilogue::trace {
namespace {

constexpr uint32_t kReplacementCode = 0xFFFD;
constexpr size_t kHexDigits = 4;

std::optional<uint32_t> hex4(std::string_view text) {
  uint32_t unit = 0;
  if (text.size() < kHexDigits) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + kHexDigits, unit, 16);
  if (error != std::errc() || end != text.data() + kHexDigits) return std::nullopt;
  return unit;
}

void append_utf8(std::string& out, uint32_t c) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

bool is_high_surrogate(uint32_t c) { return c >= 0xD800 && c < 0xDC00; }
bool is_low_surrogate(uint32_t c) { return c >= 0xDC00 && c < 0xE000; }

// `text` starts behind "\u". Returns how much of it was used; 0: not four hex digits.
size_t append_unicode_escape(std::string& out, std::string_view text) {
  const std::optional<uint32_t> first = hex4(text);
  if (!first) return 0;
  if (is_high_surrogate(*first) && text.substr(kHexDigits).starts_with("\\u")) {
    const std::optional<uint32_t> second = hex4(text.substr(kHexDigits + 2));
    if (second && is_low_surrogate(*second)) {
      append_utf8(out, 0x10000 + ((*first - 0xD800) << 10) + (*second - 0xDC00));
      return 2 * kHexDigits + 2;
    }
  }
  const bool is_half = is_high_surrogate(*first) || is_low_surrogate(*first);
  append_utf8(out, is_half ? kReplacementCode : *first);
  return kHexDigits;
}

char simple_escape(char c) {
  switch (c) {
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case '"':
    case '\\':
    case '/': return c;
    default: return '\0';
  }
}

}  // namespace

void append_decoded(std::string& out, std::string_view escaped) {
  while (!escaped.empty()) {
    const size_t plain = escaped.find('\\');
    out.append(escaped.substr(0, plain));
    if (plain == std::string_view::npos) return;
    escaped.remove_prefix(plain + 1);
    const char c = escaped.empty() ? '\0' : escaped.front();
    size_t used = 0;
    if (c == 'u') {
      const size_t digits = append_unicode_escape(out, escaped.substr(1));
      used = digits == 0 ? 0 : digits + 1;
    } else if (const char plain_char = simple_escape(c); plain_char != '\0') {
      out += plain_char;
      used = 1;
    }
    if (used == 0) out += '\\';
    escaped.remove_prefix(used);
  }
}

bool has_bad_escape(std::string_view inside) {
  constexpr std::string_view kEscapable = "\"\\/bfnrtu";
  for (size_t i = inside.find('\\'); i != std::string_view::npos; i = inside.find('\\', i + 2))
    if (i + 1 >= inside.size() || kEscapable.find(inside[i + 1]) == std::string_view::npos)
      return true;
  return false;
}

std::string_view inside_quotes(std::string_view value) {
  const bool is_quoted = value.size() >= 2 && value.front() == '"' && value.back() == '"';
  return is_quoted ? value.substr(1, value.size() - 2) : value;
}

}  // namespace epilogue::trace
