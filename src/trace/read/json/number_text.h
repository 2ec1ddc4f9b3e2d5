// SPDX-License-Identifier: Apache-2.0
// Numbers from JSON text, exactly: no detour through a double.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace epilogue::trace {

enum class NumberFault : uint8_t { fine, not_a_number, out_of_range };

struct ExactNumber {
  int64_t value = 0;
  NumberFault fault = NumberFault::not_a_number;
  bool ok() const { return fault == NumberFault::fine; }
};

// `text` * 10^decimals, rounded half away from zero to a whole number. Takes signs, fractions and
// exponents of any length; quotes around the number are allowed.
ExactNumber parse_scaled(std::string_view text, int decimals);

// Microseconds as text -> nanoseconds.
inline ExactNumber parse_us(std::string_view text) { return parse_scaled(text, 3); }

// A whole number, also "0x1f" and unsigned ones up to 2^64 - 1, which keep their 64 bits (handles,
// pointers and hashes: only equality matters).
ExactNumber parse_integer(std::string_view text);

// A finite number; nothing for "inf", null and the like.
std::optional<double> parse_real(std::string_view text);

}  // namespace epilogue::trace
