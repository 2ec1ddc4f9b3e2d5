// SPDX-License-Identifier: Apache-2.0
// One-line messages about files whose names and contents nobody vouches for.
#pragma once

#include <string>
#include <string_view>

#include "epilogue/base/result.h"

namespace epilogue::io {

// printable(text) between single quotes.
std::string in_quotes(std::string_view text);

// "FILE: CODE: DETAIL".
Failure io_failure(std::string_view file, FailureCode code, std::string_view detail);

}  // namespace epilogue::io
