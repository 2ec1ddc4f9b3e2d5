// SPDX-License-Identifier: Apache-2.0
// f32 and bf16 elements as f32, and back. A bf16 is a uint16_t here: loops over it become vectors.
#pragma once

#include <bit>
#include <cstdint>

namespace epilogue_torch {

inline float widen(float value) { return value; }
inline float widen(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}
inline void narrow(float value, float& out) { out = value; }
// To the nearest, ties to even, of a value that is no NaN, or a quiet one whose lower 16 bits are
// 0.
inline void narrow_number(float value, float& out) { out = value; }
inline void narrow_number(float value, uint16_t& out) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  out = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
// The same of any value.
inline void narrow(float value, uint16_t& out) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  out = static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16) | 0x40 : rounded);
}

}  // namespace epilogue_torch
