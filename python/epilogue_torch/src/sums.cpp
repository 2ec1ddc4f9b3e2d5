// SPDX-License-Identifier: Apache-2.0
#include "sums.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "element.h"

namespace epilogue_torch {
namespace {

constexpr int64_t kLine = 64;     // bytes that memory moves at once
constexpr int64_t kAhead = 4096;  // bytes, after which what was asked for is there

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

template <int ranks, bool has_residual, class T, class Out>
[[gnu::always_inline]] inline void sum_range(const Sum<T, Out>& s, const T* const* from,
                                             int64_t begin, int64_t end) {
#pragma GCC ivdep  // `out` may be one of the summands
  for (int64_t i = begin; i < end; ++i) {
    float sum = widen(from[0][i]);
    for (int r = 1; r < ranks; ++r) sum += widen(from[r][i]);
    if constexpr (has_residual) sum += widen(s.residual[i]);
    narrow(sum, s.out[i]);
  }
}

// The sum of a few ranks without a bias, in one pass. What comes kAhead bytes later is fetched
// meanwhile: the other ranks' processors have their parts, and the result's memory is far, too.
template <int ranks, bool has_residual, class T, class Out>
[[gnu::always_inline]] inline void sum_few(const Sum<T, Out>& sum) {
  constexpr int64_t kStep = 64;  // elements
  constexpr int64_t kLines = kStep * static_cast<int64_t>(sizeof(T)) / kLine;
  constexpr int64_t kOutLines = kStep * static_cast<int64_t>(sizeof(Out)) / kLine;
  const Sum<T, Out> s = sum;
  const T* from[ranks];
  for (int r = 0; r < ranks; ++r) from[r] = s.from[r];
  const auto fetch = [](const auto* at, int64_t lines) {
    for (int64_t i = 0; i < lines; ++i)
      __builtin_prefetch(reinterpret_cast<const char*>(at) + i * kLine, 0, 3);
  };
  int64_t begin = 0;
  for (; begin + kStep <= s.count; begin += kStep) {
    const int64_t ahead = std::min(begin + kAhead / static_cast<int64_t>(sizeof(T)), s.count - 1);
    for (int r = 0; r < ranks; ++r) fetch(from[r] + ahead, kLines);
    if constexpr (has_residual) fetch(s.residual + ahead, kOutLines);
    fetch(s.out + ahead, kOutLines);
    sum_range<ranks, has_residual>(s, from, begin, begin + kStep);
  }
  sum_range<ranks, has_residual>(s, from, begin, s.count);
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
  const char* const end = from + rows * bytes;
  for (int64_t row = 0; row < rows; ++row) {
    char* const out = to + row * to_stride;
    const char* const in = from + row * bytes;
    for (int64_t i = 0; i < bytes; i += kUnit) {
      if (i % kLine == 0) __builtin_prefetch(std::min(in + i + kAhead, end), 0, 3);
      _mm_stream_si128(reinterpret_cast<__m128i*>(out + i),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i)));
    }
  }
  _mm_sfence();
}

void sum_of(const Sum<float>& s) { add_up(s); }
void sum_of(const Sum<uint16_t>& s) { add_up(s); }
void sum_of(const Sum<uint16_t, float>& s) { add_up(s); }
void sum_of(const Sum<float, uint16_t>& s) { add_up(s); }

}  // namespace epilogue_torch
