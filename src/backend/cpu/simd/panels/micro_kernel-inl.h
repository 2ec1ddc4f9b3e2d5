// SPDX-License-Identifier: Apache-2.0
// The f32 micro-kernel: a few rows of A times rows of B's vectors, summed in registers. How B is
// read is a type:
//
//   kStepBytes                           of one row of B; 0: nothing of it is fetched ahead
//   data()                               where row 0 lies
//   load<kVectors>(k, Vf (&)[kVectors])  row k as f32
//
// Included once per target.
#if defined(EPILOGUE_SIMD_PANELS_MICRO_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EPILOGUE_SIMD_PANELS_MICRO_KERNEL_INL_H_
#undef EPILOGUE_SIMD_PANELS_MICRO_KERNEL_INL_H_
#else
#define EPILOGUE_SIMD_PANELS_MICRO_KERNEL_INL_H_
#endif

#include <algorithm>

#include "backend/cpu/simd/lanes-inl.h"
#include "backend/cpu/simd/panels/prefetch.h"
#include "backend/cpu/simd/panels/tile_size-inl.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {

// Sums that run side by side, each over every kChains-th k: few rows have registers to spare, wait
// for the latency of an addition otherwise, and shorter sums round less.
constexpr int64_t chains_of(int64_t rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }

// Steps of k written out one after the other, a multiple of the chains. 12 multiply-adds of 256
// bits take 6 cycles, which a loop of one step would lengthen; 24 of 512 bits hide it.
constexpr int64_t unroll_of(int64_t rows) { return HWY_TARGET == HWY_AVX3 ? chains_of(rows) : 4; }

// Steps between fetches of the next panel, at least: short loops would cost more than they hide.
inline constexpr int64_t kFetchSteps = 32;

// Step k's share of what is fetched ahead.
template <Ahead kAhead, class B>
HWY_INLINE void fetch_ahead(const B& b, int64_t k) {
  if constexpr (kAhead.bytes > 0) {
    constexpr int64_t line = 64;
    constexpr int64_t bytes = B::kStepBytes;
    const char* const from = reinterpret_cast<const char*>(b.data()) + k * bytes + kAhead.bytes;
    // Steps of less than a line: once per line.
    if (bytes < line && k % (line / std::min(bytes, line)) != 0) return;
#pragma GCC unroll 4
    for (int64_t i = 0; i < bytes; i += line) fetch_line<kAhead.into>(from + i);
  }
}

// Rows of A where they lie. A pointer for each row: compilers keep them in registers, and would not
// what they compute from a stride.
template <int64_t kRows>
struct RowsInPlace {
  const float* rows[kRows];
  HWY_INLINE float at(int64_t i, int64_t k) const { return rows[i][k]; }
};

// sums += row k of B times column k of A's rows.
template <class A, class B, int64_t kRows, int64_t kVectors>
HWY_INLINE void add_products(const A& a, const B& b, int64_t k, Vf (&sums)[kRows][kVectors]) {
  Vf row[kVectors];
  b.load(k, row);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
    const Vf factor = set(a.at(i, k));
#pragma GCC unroll 4
    for (int64_t j = 0; j < kVectors; ++j) sums[i][j] = hn::MulAdd(factor, row[j], sums[i][j]);
  }
}

template <int64_t kRows, int64_t kVectors>
HWY_INLINE void clear(Vf (&sums)[kRows][kVectors]) {
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kVectors; ++j) sums[i][j] = set(0.0F);
  }
}

template <int64_t kChains, int64_t kRows, int64_t kVectors>
HWY_INLINE Vf merged(const Vf (&sums)[kChains][kRows][kVectors], int64_t i, int64_t j) {
  Vf sum = sums[0][i][j];
  if constexpr (kChains >= 2) sum = hn::Add(sum, sums[1][i][j]);
  if constexpr (kChains == 4) sum = hn::Add(sum, hn::Add(sums[2][i][j], sums[3][i][j]));
  return sum;
}

// put(i, j, sum over k of a[i][k] * b[k][vector j]) for each row and vector. `next` is fetched
// meanwhile.
template <int64_t kVectors, int64_t kChains, int64_t kUnroll, Ahead kAhead, int64_t kRows, class B,
          class Put>
HWY_INLINE void micro_kernel(const RowsInPlace<kRows>& a, const B& b, int64_t depth,
                             const NextPanel& next, const Put& put) {
  static_assert(kUnroll % kChains == 0);
  Vf sums[kChains][kRows][kVectors];
#pragma GCC unroll 4
  for (int64_t c = 0; c < kChains; ++c) clear(sums[c]);
  // Fetches, then steps without any, unrolled: the loop's own instructions would be a fifth.
  int64_t k = 0;
  for (int64_t group = 0; k + kUnroll <= depth; ++group) {
    next.fetch(group);
    const int64_t end = std::min(depth - kUnroll + 1, (group + 1) * next.group());
    for (; k < end; k += kUnroll) {
#pragma GCC unroll 4
      for (int64_t c = 0; c < kUnroll; ++c) {
        fetch_ahead<kAhead>(b, k + c);
        add_products(a, b, k + c, sums[c % kChains]);
      }
    }
  }
  for (; k < depth; ++k) add_products(a, b, k, sums[0]);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kVectors; ++j) put(i, j, merged<kChains, kRows, kVectors>(sums, i, j));
  }
}

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, toggled per target
