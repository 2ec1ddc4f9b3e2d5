// SPDX-License-Identifier: Apache-2.0
// The white space between the tokens of JSON.
#pragma once

#include <algorithm>
#include <string_view>

namespace epilogue::trace {

inline constexpr std::string_view kSpace = " \t\r\n";

// Where the next token begins, at `at` or behind it; the text's size where there is none.
inline size_t skip_space(std::string_view text, size_t at) {
  return std::min(text.find_first_not_of(kSpace, at), text.size());
}

}  // namespace epilogue::trace
