// SPDX-License-Identifier: Apache-2.0
#include "sums.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "element.h"

namespace epilogue_torch {
namespace {

constexpr size_t kLine = 64;  // bytes that memory moves at once

template <class T, class Out>
[[gnu::always_inline]] inline void sum_block(const Sum<T, Out>& s, int64_t begin, int64_t n,
                                             float* sums) {
  const T* const first = s.from[0] + begin;
  for (int64_t i = 0; i < n; ++i) sums[i] = widen(first[i]);
  for (int64_t r = 1; r < s.ranks; ++r) {
    const T* const other = s.from[r] + begin;
    for (int64_t i = 0; i < n; ++i) sums[i] += widen(other[i]);
  }
  for (int64_t done = 0; s.bias && done < n;) {
    const int64_t column = (s.at + begin + done) % s.columns;
    const int64_t run = std::min(s.columns - column, n - done);
    for (int64_t i = 0; i < run; ++i) sums[done + i] += widen(s.bias[column + i]);
    done += run;
  }
  if (s.residual)
    for (int64_t i = 0; i < n; ++i) sums[i] += widen(s.residual[begin + i]);
  Out* const out = s.out + begin;
  for (int64_t i = 0; i < n; ++i) narrow(sums[i], out[i]);
}

// The sum of a few ranks without a bias, in one pass. While a part is added up the next one comes
// from where the other ranks' processors have it.
template <int ranks, bool has_residual, class T, class Out>
[[gnu::always_inline]] inline void sum_few(const Sum<T, Out>& s) {
  constexpr int64_t kPart = 1024;
  const T* from[ranks];
  for (int r = 0; r < ranks; ++r) from[r] = s.from[r];
  Out* const out = s.out;
  const Out* const residual = s.residual;
  for (int64_t begin = 0; begin < s.count; begin += kPart) {
    const int64_t end = std::min(s.count, begin + kPart);
    for (int64_t at = end; at < std::min(s.count, end + kPart); at += kLine / sizeof(T))
      for (int r = 0; r < ranks; ++r) __builtin_prefetch(from[r] + at, 0, 2);
#pragma GCC ivdep  // `out` may be one of the summands
    for (int64_t i = begin; i < end; ++i) {
      float sum = widen(from[0][i]);
      for (int r = 1; r < ranks; ++r) sum += widen(from[r][i]);
      if constexpr (has_residual) sum += widen(residual[i]);
      narrow(sum, out[i]);
    }
  }
}

template <class T, class Out>
[[gnu::always_inline]] inline void sum_blocks(const Sum<T, Out>& s) {
  if (!s.bias && s.ranks == 2) return s.residual ? sum_few<2, true>(s) : sum_few<2, false>(s);
  if (!s.bias && s.ranks == 4) return s.residual ? sum_few<4, true>(s) : sum_few<4, false>(s);
  constexpr int64_t kLanes = 1024;
  alignas(64) float sums[kLanes];
  for (int64_t begin = 0; begin < s.count; begin += kLanes)
    sum_block(s, begin, std::min(kLanes, s.count - begin), sums);
}

// Compiled for AVX-512 and AVX2 too, which the library's baseline lacks; the loader picks one.
[[gnu::target_clones("arch=x86-64-v4", "avx2", "default")]] void add_up(const Sum<float>& s) {
  sum_blocks(s);
}
[[gnu::target_clones("arch=x86-64-v4", "avx2", "default")]] void add_up(const Sum<uint16_t>& s) {
  sum_blocks(s);
}
[[gnu::target_clones("arch=x86-64-v4", "avx2", "default")]] void add_up(
    const Sum<uint16_t, float>& s) {
  sum_blocks(s);
}
[[gnu::target_clones("arch=x86-64-v4", "avx2", "default")]] void add_up(
    const Sum<float, uint16_t>& s) {
  sum_blocks(s);
}

}  // namespace

void copy_rows(char* to, int64_t to_stride, const char* from, int64_t rows, int64_t bytes,
               bool streams) {
  constexpr int64_t kUnit = sizeof(__m128i);
  const bool is_aligned = reinterpret_cast<uintptr_t>(to) % kUnit == 0 && to_stride % kUnit == 0;
  if (!streams || !is_aligned || bytes % kUnit != 0) {
    for (int64_t row = 0; row < rows; ++row)
      std::memcpy(to + row * to_stride, from + row * bytes, static_cast<size_t>(bytes));
    return;
  }
  for (int64_t row = 0; row < rows; ++row) {
    auto* const out = reinterpret_cast<__m128i*>(to + row * to_stride);
    const auto* const in = reinterpret_cast<const __m128i*>(from + row * bytes);
    for (int64_t i = 0; i < bytes / kUnit; ++i) _mm_stream_si128(out + i, _mm_loadu_si128(in + i));
  }
  _mm_sfence();
}

void sum_of(const Sum<float>& s) { add_up(s); }
void sum_of(const Sum<uint16_t>& s) { add_up(s); }
void sum_of(const Sum<uint16_t, float>& s) { add_up(s); }
void sum_of(const Sum<float, uint16_t>& s) { add_up(s); }

}  // namespace epilogue_torch
