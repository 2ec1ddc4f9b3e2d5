// SPDX-License-Identifier: Apache-2.0
// Quotes of CSV (RFC 4180).
#pragma once

#include <string>
#include <string_view>

namespace epilogue {

// A cell in quotes, those in it doubled.
std::string in_csv_quotes(std::string_view text);

}  // namespace epilogue
