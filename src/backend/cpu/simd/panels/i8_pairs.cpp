// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/panels/i8_pairs.h"

#include <algorithm>

#include "base/assert.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

// Inlined standard headers end above this line: nothing of them is compiled for the target.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")

namespace epilogue::simd {
namespace {

// The unmasked form warns of its own undefined operand in gcc 12.
constexpr __mmask16 kAllLanes = 0xFFFF;
constexpr int64_t kMr = 6;
constexpr int64_t kNv = kPairsWidth / 16;

// Two neighbours of a row, in all lanes.
__m512i pair_of(const int16_t* a) {
  int32_t bits = 0;
  std::memcpy(&bits, a, sizeof bits);
  return _mm512_set1_epi32(bits);
}

// sums (+)= (a[k] b[k] + a[k + 1] b[k + 1] + ...) times the row's scale and the column's. Integer
// sums are exact, and fit: kI8SumDepth products of at most 127 * 32767.
template <int64_t kRows, int kParts>
void tile(const PanelArgs& args, int64_t row) {
  constexpr int64_t part_vectors = kNv / kParts;
  constexpr int64_t part_width = kPairsWidth / kParts;
  const auto* a = static_cast<const int16_t*>(args.a) + row * args.a_stride;
  const auto* b = static_cast<const int8_t*>(args.panel);
  __m512i sums[kRows][kNv];
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kNv; ++j) sums[i][j] = _mm512_setzero_si512();
  }
  for (int64_t k = 0; k < args.k; k += 2, b += 2 * kPairsWidth) {
    __m512i columns[kNv];
#pragma GCC unroll 4
    for (int64_t j = 0; j < kNv; ++j)
      columns[j] =
          _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + j * 32)));
#pragma GCC unroll 8
    for (int64_t i = 0; i < kRows; ++i) {
      const __m512i factor = pair_of(a + i * args.a_stride + k);
#pragma GCC unroll 4
      for (int64_t j = 0; j < kNv; ++j)
        sums[i][j] = _mm512_dpwssd_epi32(sums[i][j], columns[j], factor);
    }
  }
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
    const __m512 row_scale = _mm512_set1_ps(args.row_scales[row + i]);
#pragma GCC unroll 4
    for (int64_t j = 0; j < kNv; ++j) {
      float* const to =
          args.sums[j / part_vectors] + (row + i) * part_width + j % part_vectors * 16;
      const __m512 scale = _mm512_mul_ps(row_scale, _mm512_loadu_ps(args.scales + j * 16));
      const __m512 earlier = args.accumulate ? _mm512_loadu_ps(to) : _mm512_setzero_ps();
      _mm512_storeu_ps(
          to, _mm512_add_ps(earlier,
                            _mm512_mul_ps(_mm512_maskz_cvtepi32_ps(kAllLanes, sums[i][j]), scale)));
    }
  }
}

template <int kParts>
void panel_product(const PanelArgs& args) {
  int64_t row = 0;
  for (; row + kMr <= args.m; row += kMr) tile<kMr, kParts>(args, row);
  switch (args.m - row) {
    case 5: return tile<5, kParts>(args, row);
    case 4: return tile<4, kParts>(args, row);
    case 3: return tile<3, kParts>(args, row);
    case 2: return tile<2, kParts>(args, row);
    case 1: return tile<1, kParts>(args, row);
    default: return;
  }
}

}  // namespace

void i8_pairs_one(const PanelArgs& args) { panel_product<1>(args); }
void i8_pairs_two(const PanelArgs& args) { panel_product<2>(args); }

}  // namespace epilogue::simd

#pragma GCC pop_options

#else

namespace epilogue::simd {

void i8_pairs_one(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }
void i8_pairs_two(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }

}  // namespace epilogue::simd

#endif
