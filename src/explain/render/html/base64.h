// SPDX-License-Identifier: Apache-2.0
// Bytes as text that no HTML parser can misread.
#pragma once

#include <string>
#include <string_view>

namespace epilogue::trace {

std::string base64(std::string_view bytes);

}  // namespace epilogue::trace
