// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/panels/attention_lines.h"

#include <algorithm>
#include <limits>

#include "base/assert.h"

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

// Inlined standard headers end above this line: nothing of them is compiled for the target.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")

namespace epilogue::simd {
namespace {

// gcc 12 warns of the forms without a mask that they read what was never set.
constexpr __mmask16 kAll = 0xFFFF;
// Of a step of keys.
constexpr int kVectors = kTileK / kScoreLanes;
constexpr float kLog2E = 1.44269504F;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
// In powers of 2.
constexpr float kMostAbove = 8;

// 2^y = p 2^floor(y): a minimax fit of degree 3 for the fraction (8e-5). 0 for -inf.
__m512 exp2_of(__m512 y) {
  constexpr int kToFloor = 0x9;
  const __m512 f = _mm512_maskz_reduce_ps(kAll, y, kToFloor);
  __m512 p = _mm512_fmadd_ps(f, _mm512_set1_ps(0.078024525F), _mm512_set1_ps(0.226067170F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.695833526F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.999925221F));
  return _mm512_maskz_scalef_ps(kAll, p, y);
}

// The row's maximum after one more of these, in powers of 2; what it had is scaled if it grows.
float follow(ScoreState& state, int64_t row, float found) {
  const float max = state.max[row];
  state.factors[row] = 1;
  // Rows that have seen nothing follow at once: their sums are 0.
  if (found > max + kMostAbove || max == kMinusInfinity) {
    if (found == max) return 0;  // all are -inf so far: each p is 0, not NaN
    const float factor = _mm512_cvtss_f32(exp2_of(_mm512_set1_ps(max - found)));
    state.factors[row] = factor;
    state.is_scaled = true;
    state.max[row] = found;
    __m512 sums = _mm512_load_ps(state.sums[row]);
    sums = _mm512_mul_ps(sums, _mm512_set1_ps(factor));
    _mm512_store_ps(state.sums[row], sums);
    return found;
  }
  return max;
}

// p = 2^(s scale - max) of all vectors, summed and rounded.
template <int kSteps>
void make(const ScoreLines& lines, int64_t row, const __m512* s, float scale, float max) {
  ScoreState& state = *lines.state;
  const __m512 factor = _mm512_set1_ps(scale);
  const __m512 shift = _mm512_set1_ps(-max);
  uint16_t* to = lines.probabilities + row * kTileK;
  __m512 sums = _mm512_load_ps(state.sums[row]);
#pragma GCC unroll 4
  for (int v = 0; v < kSteps * kVectors; v += 2, to += kTilePair) {
    const __m512 low = exp2_of(_mm512_fmadd_ps(s[v], factor, shift));
    const __m512 high = exp2_of(_mm512_fmadd_ps(s[v + 1], factor, shift));
    sums = _mm512_add_ps(sums, _mm512_add_ps(low, high));
    const __m512bh rounded = _mm512_cvtne2ps_pbh(high, low);
    _mm512_store_si512(to, reinterpret_cast<const __m512i&>(rounded));
  }
  _mm512_store_ps(state.sums[row], sums);
}

__m512 max_of(__m512 a, __m512 b) { return _mm512_maskz_max_ps(kAll, a, b); }
__m512 sum_of(__m512 a, __m512 b) { return _mm512_add_ps(a, b); }

// Of all lanes; `op` of two vectors.
template <__m512 (*op)(__m512, __m512)>
float across(__m512 x) {
  x = op(x, _mm512_maskz_shuffle_f32x4(kAll, x, x, 0x4E));
  x = op(x, _mm512_maskz_shuffle_f32x4(kAll, x, x, 0xB1));
  x = op(x, _mm512_maskz_permute_ps(kAll, x, 0x4E));
  return _mm512_cvtss_f32(op(x, _mm512_maskz_permute_ps(kAll, x, 0xB1)));
}

template <int kSteps>
float largest(const __m512* s) {
  __m512 most = max_of(s[0], s[1]);
#pragma GCC unroll 4
  for (int v = kVectors; v < kSteps * kVectors; v += kVectors)
    most = max_of(most, max_of(s[v], s[v + 1]));
  return across<max_of>(most);
}

// All of the first `keys` of a row.
template <int kSteps>
void all_keys(const ScoreLines& lines, int64_t row) {
  const float* const from = lines.scores + row * kScoreStride;
  constexpr int last = (kSteps - 1) * kVectors;
  __m512 s[kSteps * kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kSteps * kVectors; ++v) s[v] = _mm512_load_ps(from + v * kScoreLanes);
  if (lines.keys < kSteps * kTileK) {
    const auto seen = static_cast<uint32_t>((uint64_t{1} << (lines.keys - last * kScoreLanes)) - 1);
    const __m512 none = _mm512_set1_ps(kMinusInfinity);
    s[last] = _mm512_mask_mov_ps(none, static_cast<__mmask16>(seen), s[last]);
    s[last + 1] = _mm512_mask_mov_ps(none, static_cast<__mmask16>(seen >> 16), s[last + 1]);
  }
  const float found = largest<kSteps>(s) * lines.scale;
  make<kSteps>(lines, row, s, lines.scale, follow(*lines.state, row, found));
}

template <int kSteps>
void some_keys(const ScoreLines& lines, int64_t row) {
  const float* const from = lines.scores + row * kScoreStride;
  const int64_t limit = std::clamp<int64_t>(lines.limit + row * lines.limit_step, 0, lines.keys);
  const __m512 scale = _mm512_set1_ps(lines.scale);
  __m512 s[kSteps * kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kSteps * kVectors; ++v) {
    const int64_t left = std::clamp<int64_t>(limit - v * kScoreLanes, 0, kScoreLanes);
    auto is_seen = static_cast<__mmask16>((1U << left) - 1);
    const int64_t at = row * lines.mask_stride + v * kScoreLanes;
    if (lines.seen != nullptr) {
      const __m128i bytes = _mm_maskz_loadu_epi8(is_seen, lines.seen + at);
      is_seen = _mm_test_epi8_mask(bytes, bytes);
    }
    __m512 y = _mm512_mul_ps(_mm512_load_ps(from + v * kScoreLanes), scale);
    if (lines.addend != nullptr)
      y = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(is_seen, lines.addend + at), _mm512_set1_ps(kLog2E),
                          y);
    s[v] = _mm512_mask_mov_ps(_mm512_set1_ps(kMinusInfinity), is_seen, y);
  }
  const float found = largest<kSteps>(s);
  make<kSteps>(lines, row, s, 1, follow(*lines.state, row, found));
}

void scale_sums(const ScoreState& state, int64_t rows, int64_t values, float* sums) {
  for (int64_t block = 0; block < values; block += kTileBlock)
    for (int64_t row = 0; row < kQueryRows; ++row, sums += kTileBlock) {
      if (row >= rows) continue;
      const __m512 factor = _mm512_set1_ps(state.factors[row]);
      _mm512_store_ps(sums, _mm512_mul_ps(_mm512_load_ps(sums), factor));
      _mm512_store_ps(sums + 16, _mm512_mul_ps(_mm512_load_ps(sums + 16), factor));
    }
}

void result_row(const ResultLines& lines, int64_t row) {
  const float sum = across<sum_of>(_mm512_load_ps(lines.state->sums[row]));
  const bool is_empty = sum == 0 && lines.empty_is_zero;
  const __m512 factor = _mm512_set1_ps(is_empty ? 0 : 1 / sum);
  for (int64_t at = 0; at < lines.values; at += kTileBlock) {
    const float* const from = lines.sums + at * kQueryRows + row * kTileBlock;
    const __m512 low = _mm512_mul_ps(_mm512_load_ps(from), factor);
    const __m512 high = _mm512_mul_ps(_mm512_load_ps(from + 16), factor);
    const __m512bh rounded = _mm512_cvtne2ps_pbh(high, low);
    const int64_t left = std::min(lines.values - at, kTileBlock);
    const auto stored = static_cast<__mmask32>((uint64_t{1} << left) - 1);
    _mm512_mask_storeu_epi16(lines.out + row * lines.stride + at, stored,
                             reinterpret_cast<const __m512i&>(rounded));
  }
}

}  // namespace

const AttentionLines& attention_lines() {
  static_assert(kScoreSteps == 4);
  static constexpr AttentionLines lines = {{all_keys<1>, all_keys<2>, all_keys<3>, all_keys<4>},
                                           {some_keys<1>, some_keys<2>, some_keys<3>, some_keys<4>},
                                           scale_sums,
                                           result_row};
  return lines;
}

}  // namespace epilogue::simd
HWY_POP_ATTRIBUTES

#else

namespace epilogue::simd {

const AttentionLines& attention_lines() {
  EPI_ASSERT(false, "x86-64 only");
  static constexpr AttentionLines none = {};
  return none;
}

}  // namespace epilogue::simd

#endif
