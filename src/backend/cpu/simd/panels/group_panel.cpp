// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/panels/group_panel.h"

#include <algorithm>
#include <cstring>

namespace epilogue::simd {

void store_group(const GroupFormat& f, int64_t width, const uint8_t* steps, const uint16_t* scales,
                 const uint8_t* zeros, void* out) {
  char* to = static_cast<char*>(out);
  std::memcpy(to, scales, static_cast<size_t>(2 * width));
  to += 2 * width;
  if (f.has_zeros) {
    std::memcpy(to, zeros, static_cast<size_t>(width));
    to += width;
  }
  for (int64_t k = 0; k < f.size; k += 8)
    for (int64_t j = 0; j < width; ++j) {
      uint32_t word = 0;
      for (int i = 0; i < 8; ++i) word |= uint32_t{steps[(k + i) * width + j]} << group_bit(i);
      std::memcpy(to, &word, sizeof word);
      to += sizeof word;
    }
}

}  // namespace epilogue::simd
