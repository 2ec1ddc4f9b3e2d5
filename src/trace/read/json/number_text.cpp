// SPDX-License-Identifier: Apache-2.0
#include "trace/read/json/number_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

namespace epilogue::trace {
namespace {

// So many digits always fit an int64.
constexpr size_t kSafeDigits = 18;
// An exponent beyond this is out of range whatever the digits are; keeps arithmetic on it small.
constexpr int64_t kMaxExponent = 1'000'000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view unquoted(std::string_view text) {
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"')
    text = text.substr(1, text.size() - 2);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// The parts of a decimal number: 0.digits * 10^point.
struct Decimal {
  bool is_negative = false;
  std::string digits;  // no leading zeros
  int64_t point = 0;
};

std::optional<Decimal> split_decimal(std::string_view text) {
  Decimal d;
  size_t i = 0;
  if (i < text.size() && (text[i] == '-' || text[i] == '+')) d.is_negative = text[i++] == '-';
  bool has_digit = false;
  bool in_fraction = false;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '.' && !in_fraction) {
      in_fraction = true;
    } else if (is_digit(c)) {
      has_digit = true;
      const bool is_leading_zero = d.digits.empty() && c == '0';
      if (!is_leading_zero) d.digits += c;
      if (!in_fraction && !is_leading_zero) ++d.point;
      if (in_fraction && is_leading_zero) --d.point;
    } else {
      break;
    }
  }
  if (!has_digit) return std::nullopt;
  if (i == text.size()) return d;
  if (text[i] != 'e' && text[i] != 'E') return std::nullopt;
  ++i;
  if (i < text.size() && text[i] == '+') ++i;
  int64_t exponent = 0;
  const auto [end, error] = std::from_chars(text.data() + i, text.data() + text.size(), exponent);
  if (end != text.data() + text.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) exponent = text[i] == '-' ? INT64_MIN : INT64_MAX;
  if (error == std::errc::invalid_argument) return std::nullopt;
  d.point += std::clamp(exponent, -kMaxExponent, kMaxExponent);
  return d;
}

ExactNumber round_decimal(const Decimal& d, int decimals) {
  const int64_t whole = d.point + decimals;  // digits in front of the rounded-off part
  if (d.digits.empty() || whole < 0) return {0, NumberFault::fine};
  uint64_t value = 0;
  for (int64_t i = 0; i < whole; ++i) {
    const auto at = static_cast<size_t>(i);
    const auto digit = at < d.digits.size() ? static_cast<uint64_t>(d.digits[at] - '0') : 0U;
    if (__builtin_mul_overflow(value, uint64_t{10}, &value) ||
        __builtin_add_overflow(value, digit, &value))
      return {0, NumberFault::out_of_range};
  }
  const auto next = static_cast<size_t>(whole);
  const bool rounds_up = next < d.digits.size() && d.digits[next] >= '5';
  if (value > static_cast<uint64_t>(INT64_MAX) - (rounds_up ? 1 : 0))
    return {0, NumberFault::out_of_range};
  if (rounds_up) ++value;
  const auto magnitude = static_cast<int64_t>(value);
  return {d.is_negative ? -magnitude : magnitude, NumberFault::fine};
}

ExactNumber parse_slow(std::string_view text, int decimals) {
  const std::optional<Decimal> d = split_decimal(unquoted(text));
  return d ? round_decimal(*d, decimals) : ExactNumber{};
}

ExactNumber parse_unsigned(std::string_view digits, int base) {
  uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (digits.empty() || end != digits.data() + digits.size()) return {};
  if (error != std::errc()) return {0, NumberFault::out_of_range};
  return {static_cast<int64_t>(value), NumberFault::fine};
}

}  // namespace

ExactNumber parse_scaled(std::string_view text, int decimals) {
  // Nearly all numbers are "123" or "123.456": no sign, few digits.
  int64_t value = 0;
  int left = decimals;
  bool in_fraction = false;
  if (text.size() > kSafeDigits || text.empty()) return parse_slow(text, decimals);
  for (const char c : text) {
    if (is_digit(c) && (!in_fraction || left > 0)) {
      value = value * 10 + (c - '0');
      left -= in_fraction ? 1 : 0;
    } else if (c == '.' && !in_fraction && decimals > 0) {
      in_fraction = true;
    } else {
      return parse_slow(text, decimals);
    }
  }
  for (; left > 0; --left)
    if (__builtin_mul_overflow(value, int64_t{10}, &value)) return parse_slow(text, decimals);
  return text == "." ? ExactNumber{} : ExactNumber{value, NumberFault::fine};
}

ExactNumber parse_integer(std::string_view text) {
  // Nearly all are a few plain digits.
  if (text.size() <= kSafeDigits && !text.empty()) {
    int64_t value = 0;
    const auto* at = text.begin();
    for (; at != text.end() && is_digit(*at); ++at) value = value * 10 + (*at - '0');
    if (at == text.end()) return {value, NumberFault::fine};
  }
  const std::string_view plain = unquoted(text);
  if (plain.starts_with("0x")) return parse_unsigned(plain.substr(2), 16);
  const bool is_plain = !plain.empty() && std::all_of(plain.begin(), plain.end(), is_digit);
  if (is_plain) return parse_unsigned(plain, 10);
  if (plain == "-9223372036854775808") return {INT64_MIN, NumberFault::fine};
  return parse_slow(plain, 0);
}

std::optional<double> parse_real(std::string_view text) {
  const std::string_view plain = unquoted(text);
  double value = 0;
  const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), value);
  if (error != std::errc() || end != plain.data() + plain.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

}  // namespace epilogue::trace
