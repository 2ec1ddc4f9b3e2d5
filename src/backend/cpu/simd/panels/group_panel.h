// SPDX-License-Identifier: Apache-2.0
// Panels of 4-bit weights. One group of k after the other, so that a kernel streams one run of
// memory:
//
//   scales  [width] of 16 bits
//   zeros   [width] bytes, where the format has them
//   words   [size / 8][width] of 32 bits: 8 neighbours along k of one column
//
// A word holds neighbours 2 t and 2 t + 1 in its halves of 16 bits, both 4 t bits up: shifted by
// 4 t and masked it is a pair of 16-bit integers, as the instructions multiply-add pairs.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/panels/layout.h"

namespace epilogue::simd {

constexpr int64_t group_header_bytes(const GroupFormat& f, int64_t width) {
  return width * (f.has_zeros ? 3 : 2);
}
constexpr int64_t group_bytes(const GroupFormat& f, int64_t width) {
  return group_header_bytes(f, width) + f.size * width / 2;
}

// Neighbour i of a word begins at this bit.
constexpr int group_bit(int i) { return (i & 1) * 16 + (i >> 1) * 4; }

// One group as a kernel reads it.
struct GroupView {
  const uint16_t* scales;
  const uint8_t* zeros;  // null: kMiddleStep
  const uint32_t* words;
};
inline GroupView group_at(const void* panel, const GroupFormat& f, int64_t width, int64_t index) {
  const char* const at = static_cast<const char*>(panel) + index * group_bytes(f, width);
  return {reinterpret_cast<const uint16_t*>(at),
          f.has_zeros ? reinterpret_cast<const uint8_t*>(at) + 2 * width : nullptr,
          reinterpret_cast<const uint32_t*>(at + group_header_bytes(f, width))};
}

// Writes one group: steps [size][width], scales and zeros [width].
void store_group(const GroupFormat& f, int64_t width, const uint8_t* steps, const uint16_t* scales,
                 const uint8_t* zeros, void* out);

}  // namespace epilogue::simd
