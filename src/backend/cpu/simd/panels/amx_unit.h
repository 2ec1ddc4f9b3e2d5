// SPDX-License-Identifier: Apache-2.0
// AMX as assembly, not intrinsics: gcc's take tile numbers as text only, and gcc 12's loadconfig
// tells the compiler of 8 of its 64 bytes, so that the others may never be written.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/panels/amx_tiles.h"

#if defined(__x86_64__)

namespace epilogue::simd {

struct AmxUnit {
  static void configure(const TileRows& rows) {
    struct alignas(64) Config {
      uint8_t palette = 1;
      uint8_t start_row = 0;
      uint8_t reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    static_assert(sizeof(Config) == 64);
    for (size_t t = 0; t < rows.size(); ++t) {
      config.rows[t] = rows[t];
      config.row_bytes[t] = rows[t] == 0 ? 0 : 64;
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }
  static void release() { __asm__ volatile("tilerelease" : : : "memory"); }

  template <int t>
  static void zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(t));
  }
  template <int t>
  static void load(const void* from, int64_t stride_bytes) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2"
                     :
                     : "r"(from), "r"(stride_bytes), "i"(t)
                     : "memory");
  }
  template <int t>
  static void load_once(const void* from, int64_t stride_bytes) {
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2"
                     :
                     : "r"(from), "r"(stride_bytes), "i"(t)
                     : "memory");
  }
  template <int t>
  static void store(void* to, int64_t stride_bytes) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)"
                     :
                     : "r"(to), "r"(stride_bytes), "i"(t)
                     : "memory");
  }
  template <int c, int a, int b>
  static void multiply() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }
  template <int c, int a, int b>
  static void multiply_i8() {
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }
};

// A tile's bytes are the same: 64 of k are 32 pairs of bytes, sums are int32 in the place of f32.
struct AmxIntegerUnit : AmxUnit {
  template <int c, int a, int b>
  static void multiply() {
    AmxUnit::multiply_i8<c, a, b>();
  }
};

}  // namespace epilogue::simd

#endif
