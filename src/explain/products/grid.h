// SPDX-License-Identifier: Apache-2.0
// Products of launch sizes, which come from a file.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

namespace epilogue::trace {

// The product of sizes; empty when one is negative or it overflows.
inline std::optional<int64_t> product(std::span<const int64_t> sizes) {
  int64_t result = 1;
  for (const int64_t size : sizes)
    if (size < 0 || __builtin_mul_overflow(result, size, &result)) return std::nullopt;
  return result;
}

inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace epilogue::trace
