// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace epilogue {

// How many pieces of size b hold a. Preconditions: a is not below 0, b is above 0.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// `total` in pieces of about `wanted`, all about equal and multiples of `unit`: 784 is three times
// 264, not 256 three times and 16.
constexpr int64_t even_piece(int64_t total, int64_t wanted, int64_t unit) {
  const int64_t pieces = std::max<int64_t>(1, (total + wanted / 2) / wanted);
  return ceil_div(total, unit * pieces) * unit;
}

}  // namespace epilogue
