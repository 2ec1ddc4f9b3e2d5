// SPDX-License-Identifier: Apache-2.0
#include "base/text/csv_quotes.h"

namespace epilogue {

std::string in_csv_quotes(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace epilogue
