// SPDX-License-Identifier: Apache-2.0
// Text of tables as UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace epilogue::io {

// Whether it is: no byte out of place, no overlong form, no surrogate, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

// Appends `text`; if it is not UTF-8, as if it were Latin-1.
void append_as_utf8(std::string& to, std::string_view text);

}  // namespace epilogue::io
