// SPDX-License-Identifier: Apache-2.0
// A tile unit in plain code, which checks what the processor would: shapes that fit, no more rows
// touched than configured.
#pragma once

#include "backend/cpu/simd/convert.h"
#include "backend/cpu/simd/panels/amx_tiles.h"
#include "support/test.h"

namespace epilogue::simd {

inline float widen(uint16_t bf16) {
  const uint32_t bits = uint32_t{bf16} << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Even between -1 and 1.
inline std::vector<uint16_t> random_bf16(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> f32(static_cast<size_t>(count));
  for (float& x : f32) x = values(generator);
  std::vector<uint16_t> out(f32.size());
  from_f32(FloatType::bf16, f32.data(), out.data(), out.size());
  return out;
}

// Eight registers of 16 rows of 64 bytes.
struct PlainUnit {
  inline static unsigned char tile[8][16][64];
  inline static TileRows rows{};
  inline static int configured = 0;
  inline static int released = 0;

  static void configure(const TileRows& r) {
    ++configured;
    rows = r;
    std::memset(tile, 0, sizeof tile);
  }
  static void release() { ++released; }
  template <int t>
  static void zero() {
    std::memset(tile[t], 0, sizeof tile[t]);
  }
  template <int t>
  static void load(const void* p, int64_t stride) {
    ASSERT_GT(rows[t], 0) << "tile " << t;
    for (int i = 0; i < rows[t]; ++i)
      std::memcpy(tile[t][i], static_cast<const char*>(p) + i * stride, 64);
  }
  template <int t>
  static void load_once(const void* p, int64_t stride) {
    load<t>(p, stride);
  }
  template <int t>
  static void store(void* p, int64_t stride) {
    ASSERT_GT(rows[t], 0) << "tile " << t;
    for (int i = 0; i < rows[t]; ++i)
      std::memcpy(static_cast<char*>(p) + i * stride, tile[t][i], 64);
  }
  template <int c, int a, int b>
  static void multiply() {
    ASSERT_EQ(rows[c], rows[a]);
    ASSERT_EQ(rows[b], 16);  // as many pairs as a row of `a` has
    for (int i = 0; i < rows[c]; ++i)
      for (int j = 0; j < 16; ++j) {
        float sum = 0;
        std::memcpy(&sum, &tile[c][i][j * 4], sizeof sum);
        for (int p = 0; p < 32; ++p) {
          uint16_t x = 0;
          uint16_t y = 0;
          std::memcpy(&x, &tile[a][i][p * 2], sizeof x);
          std::memcpy(&y, &tile[b][p / 2][(2 * j + p % 2) * 2], sizeof y);
          sum += widen(x) * widen(y);
        }
        std::memcpy(&tile[c][i][j * 4], &sum, sizeof sum);
      }
  }
  template <int c, int a, int b>
  static void multiply_i8() {
    ASSERT_EQ(rows[c], rows[a]);
    ASSERT_EQ(rows[b], 16);  // as many fours as a row of `a` has
    for (int i = 0; i < rows[c]; ++i)
      for (int j = 0; j < 16; ++j) {
        int32_t sum = 0;
        std::memcpy(&sum, &tile[c][i][j * 4], sizeof sum);
        for (int p = 0; p < 64; ++p)
          sum += static_cast<int8_t>(tile[a][i][p]) *
                 static_cast<int8_t>(tile[b][p / 4][4 * j + p % 4]);
        std::memcpy(&tile[c][i][j * 4], &sum, sizeof sum);
      }
  }
};

}  // namespace epilogue::simd
