// SPDX-License-Identifier: Apache-2.0
// libFuzzer entry: any bytes are a header or a failure, and a header's entries tile the file.
#include <cstdint>
#include <cstdlib>

#include "epilogue/io.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto header = epilogue::parse_safetensors_header(std::as_bytes(std::span(data, size)));
  if (!header) return 0;
  uint64_t end = 0;
  for (const epilogue::SafetensorsEntry& entry : header.value().entries) {
    if (entry.begin != end || entry.end < entry.begin) std::abort();
    end = entry.end;
  }
  if (header.value().data_offset + end != size) std::abort();
  return 0;
}
