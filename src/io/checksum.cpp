// SPDX-License-Identifier: Apache-2.0
#include "io/checksum.h"

#include <zlib.h>

namespace epilogue::io {

uint32_t crc32(std::span<const std::byte> bytes, uint32_t before) {
  // A null pointer would make zlib give back its start value.
  if (bytes.empty()) return before;
  return static_cast<uint32_t>(
      ::crc32_z(before, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

uint32_t crc32(std::string_view text, uint32_t before) {
  return crc32(std::as_bytes(std::span(text)), before);
}

}  // namespace epilogue::io
