// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/panels/pack_tiles.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "backend/cpu/simd/panels/operand.h"
#include "base/assert.h"

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

// Inlined standard headers end above this line: nothing of them is compiled for the target.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw")
namespace epilogue::simd {
namespace {

// 32 elements of two rows side by side: the first 16 pairs, and the others.
void interleave_lines(const uint16_t* first, const uint16_t* second, void* low, void* high) {
  const __m512i a = _mm512_loadu_si512(first);
  const __m512i b = _mm512_loadu_si512(second);
  // Within 128 bits, then these parts in order.
  const __m512i lower = _mm512_unpacklo_epi16(a, b);  // 0-3, 8-11, 16-19, 24-27
  const __m512i upper = _mm512_unpackhi_epi16(a, b);  // 4-7, 12-15, 20-23, 28-31
  const __m512i first_half = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i second_half = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  _mm512_storeu_si512(low, _mm512_permutex2var_epi64(lower, first_half, upper));
  _mm512_storeu_si512(high, _mm512_permutex2var_epi64(lower, second_half, upper));
}

}  // namespace

void interleave_pairs(const uint16_t* from, int64_t k_stride, int64_t pairs, void* low,
                      void* high) {
  auto* to_low = static_cast<char*>(low);
  auto* to_high = static_cast<char*>(high);
  for (int64_t p = 0; p < pairs; ++p, from += 2 * k_stride, to_low += 64, to_high += 64)
    interleave_lines(from, from + k_stride, to_low, to_high);
}

void transpose_square(const void* from, int64_t stride_bytes, void* out) {
  constexpr __mmask16 kAll = 0xFFFF;
  constexpr int kEven = 0x88;
  constexpr int kOdd = 0xDD;
  const auto* const rows = static_cast<const char*>(from);
  __m512i r[16];
  __m512i t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(rows + i * stride_bytes);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_maskz_unpacklo_epi32(kAll, r[i], r[i + 1]);
    t[i + 1] = _mm512_maskz_unpackhi_epi32(kAll, r[i], r[i + 1]);
  }
  // r[4 g + c], lane l: rows 4 g to 4 g + 3 of column 4 l + c.
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_maskz_unpacklo_epi64(0xFF, t[i], t[i + 2]);
    r[i + 1] = _mm512_maskz_unpackhi_epi64(0xFF, t[i], t[i + 2]);
    r[i + 2] = _mm512_maskz_unpacklo_epi64(0xFF, t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_maskz_unpackhi_epi64(0xFF, t[i + 1], t[i + 3]);
  }
  auto* const to = static_cast<char*>(out);
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i upper_even = _mm512_maskz_shuffle_i32x4(kAll, r[c], r[c + 4], kEven);
    const __m512i upper_odd = _mm512_maskz_shuffle_i32x4(kAll, r[c], r[c + 4], kOdd);
    const __m512i lower_even = _mm512_maskz_shuffle_i32x4(kAll, r[c + 8], r[c + 12], kEven);
    const __m512i lower_odd = _mm512_maskz_shuffle_i32x4(kAll, r[c + 8], r[c + 12], kOdd);
    const auto store = [&](int column, __m512i v) { _mm512_storeu_si512(to + column * 64, v); };
    store(c, _mm512_maskz_shuffle_i32x4(kAll, upper_even, lower_even, kEven));
    store(c + 4, _mm512_maskz_shuffle_i32x4(kAll, upper_odd, lower_odd, kEven));
    store(c + 8, _mm512_maskz_shuffle_i32x4(kAll, upper_even, lower_even, kOdd));
    store(c + 12, _mm512_maskz_shuffle_i32x4(kAll, upper_odd, lower_odd, kOdd));
  }
}

}  // namespace epilogue::simd
HWY_POP_ATTRIBUTES

#else

namespace epilogue::simd {

void interleave_pairs(const uint16_t*, int64_t, int64_t, void*, void*) {
  EPI_ASSERT(false, "x86-64 only");
}
void transpose_square(const void*, int64_t, void*) { EPI_ASSERT(false, "x86-64 only"); }

}  // namespace epilogue::simd

#endif

namespace epilogue::simd {
namespace {

constexpr int64_t kPairs = kTileK / 2;  // of k, in a step

// [16 of the one][16 pairs of k] of 32 bits each.
using Square = std::array<float, 16 * 16>;

// A square of n x k elements, k in pairs, zeros beyond both: element (i, p) at square[i * 16 + p /
// 2].
void gather(const uint16_t* from, const PackSource& s, int64_t n, int64_t k, Square& square) {
  square.fill(0);
  auto* const to = reinterpret_cast<uint16_t*>(square.data());
  for (int64_t i = 0; i < n; ++i)
    for (int64_t p = 0; p < k; ++p) to[i * kTileK + p] = from[i * s.outer_stride + p * s.k_stride];
}

const uint16_t* address(const PackSource& s, int64_t outer, int64_t k) {
  return static_cast<const uint16_t*>(s.data) + outer * s.outer_stride + k * s.k_stride;
}

}  // namespace

void pack_tile_rows(const PackSource& source, int64_t m, int64_t k, const TiledRows& to,
                    int64_t first) {
  EPI_ASSERT(source.type == FloatType::bf16, "rows of bf16");
  if (source.k_stride == 1) {
    for (int64_t i = 0; i < m; ++i) to.set_row(first + i, address(source, i, 0), k);
    return;
  }
  Square square;
  Square other;
  int64_t i = 0;
  if (source.outer_stride == 1)
    for (; i + kTileBlock <= m && (first + i) % kTileBlock == 0; i += kTileBlock)
      for (int64_t step = 0; step < k / kTileK; ++step) {
        interleave_pairs(address(source, i, step * kTileK), source.k_stride, kPairs, square.data(),
                         other.data());
        uint16_t* const pair = to.line(first + i, step);
        transpose_square(square.data(), 64, pair);
        transpose_square(other.data(), 64, pair + kTilePair / 2);
      }
  const int64_t whole = i;
  for (i = 0; i < m; i += kTileRows) {
    const int64_t rows = std::min(kTileRows, m - i);
    for (int64_t step = i < whole ? k / kTileK : 0; step < to.steps; ++step) {
      const int64_t depth = std::clamp<int64_t>(k - step * kTileK, 0, kTileK);
      gather(address(source, i, step * kTileK), source, rows, depth, square);
      std::memcpy(to.line(first + i, step), square.data(),
                  static_cast<size_t>(rows) * kTileK * sizeof(uint16_t));
    }
  }
}

void pack_tile_columns(const PackSource& source, int64_t n, int64_t k, int64_t steps, void* out) {
  EPI_ASSERT(source.type == FloatType::bf16, "columns of bf16");
  Square square;
  auto* to = static_cast<char*>(out);
  for (int64_t step = 0; step < steps; ++step, to += kTilePairBytes) {
    const int64_t depth = std::clamp<int64_t>(k - step * kTileK, 0, kTileK);
    const uint16_t* const from = address(source, 0, step * kTileK);
    if (n == kTileColumns && depth == kTileK && source.k_stride == 1) {
      transpose_square(from, source.outer_stride * 2, to);
    } else {
      gather(from, source, n, depth, square);
      transpose_square(square.data(), 64, to);
    }
  }
}

void pack_tile_block(const PackSource& source, int64_t n, int64_t k, int64_t steps, void* out) {
  constexpr int64_t tile = kTilePairBytes / 2;
  auto* to = static_cast<char*>(out);
  int64_t done = 0;
  if (source.outer_stride == 1 && n == kTileBlock && source.k_stride != 1)
    for (; done < k / kTileK; ++done)
      interleave_pairs(address(source, 0, done * kTileK), source.k_stride, kPairs,
                       to + done * kTilePairBytes, to + done * kTilePairBytes + tile);
  if (done == steps) return;
  for (int64_t half = 0; half < 2; ++half) {
    const int64_t columns = std::clamp<int64_t>(n - half * kTileColumns, 0, kTileColumns);
    pack_tile_columns({address(source, columns > 0 ? half * kTileColumns : 0, done * kTileK),
                       source.type, source.outer_stride, source.k_stride},
                      columns, k - done * kTileK, steps - done,
                      to + done * kTilePairBytes + half * tile);
  }
}

}  // namespace epilogue::simd
