// SPDX-License-Identifier: Apache-2.0
// Text from files, whose contents nobody vouches for, made fit for messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace epilogue {

// `text` fit for one line of a terminal: control characters escaped, cut to `max_chars` with "...".
std::string printable(std::string_view text, size_t max_chars = 80);

}  // namespace epilogue
