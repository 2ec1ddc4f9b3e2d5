// SPDX-License-Identifier: Apache-2.0
// Decodes JSON strings.
#pragma once

#include <string>
#include <string_view>

namespace epilogue::trace {

// Appends what the inside of a JSON string (without its quotes) stands for. An escape that JSON
// does not know stands for itself; half a surrogate pair becomes U+FFFD.
void append_decoded(std::string& out, std::string_view escaped);

// A backslash that escapes nothing. Whoever wrote one did not escape at all: in "C:\new\dir"
// the \n is no line break.
bool has_bad_escape(std::string_view inside);

// The inside of a quoted string; any other text as it is.
std::string_view inside_quotes(std::string_view value);

}  // namespace epilogue::trace
