// SPDX-License-Identifier: Apache-2.0
// Compresses bytes in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace epilogue::trace {

// The gzip stream of `bytes`; nothing where it would be longer than `limit_bytes`. Stops as soon as
// that is clear, so that an input of any size costs no more than the limit.
std::optional<std::string> gzip_bytes(std::string_view bytes, size_t limit_bytes = SIZE_MAX);

}  // namespace epilogue::trace
