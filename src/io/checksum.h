// SPDX-License-Identifier: Apache-2.0
// CRC-32 (IEEE 802.3, the one of gzip and PNG): finds damage, not forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace epilogue::io {

// The sum of `bytes` appended to the data whose sum is `before`.
uint32_t crc32(std::span<const std::byte> bytes, uint32_t before = 0);
uint32_t crc32(std::string_view text, uint32_t before = 0);

}  // namespace epilogue::io
