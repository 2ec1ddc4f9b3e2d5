// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace epilogue {

// How many pieces of size b hold a. Preconditions: a is not below 0, b is above 0.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace epilogue
