// SPDX-License-Identifier: Apache-2.0
// Text measured in characters, as Python measures it, not in bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace epilogue::trace {

size_t utf8_length(std::string_view text);
// The first / last n characters; the whole text when it has no more.
std::string_view utf8_prefix(std::string_view text, size_t n);
std::string_view utf8_suffix(std::string_view text, size_t n);
// Padded with spaces to n characters; longer text stays as it is.
std::string pad_left(std::string_view text, size_t n);
std::string pad_right(std::string_view text, size_t n);

}  // namespace epilogue::trace
