// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace epilogue::trace::testing {

inline bool has_text(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace epilogue::trace::testing
