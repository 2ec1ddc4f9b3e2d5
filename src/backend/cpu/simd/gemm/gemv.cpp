// SPDX-License-Identifier: Apache-2.0
// A few rows times B, read once and where it lies; compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/simd/gemm/gemv.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which chooses the target:
#include <algorithm>

#include "backend/cpu/simd/gemm/gemv.h"
#include "backend/cpu/simd/lanes-inl.h"
#include "backend/cpu/simd/targets.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {
namespace {

// Rows of x that one pass handles at once; more rows pass again over the same piece of B, which is
// in L1 by then. 4 x 4 sums need more registers than AVX2 and SSE4 have.
inline constexpr int64_t kPassRows = HWY_TARGET == HWY_AVX3 ? 4 : 2;
inline constexpr int64_t kUnroll = 4;  // columns (k contiguous) of B at once
// Rows (n contiguous) of B at once. Their products are added up before they join the sum: it is
// added to an eighth as often, and rounds as much less.
inline constexpr int64_t kUnrollRows = 8;
// Longer sums are added up in pieces of so many products: of rows of B; and of its columns, where
// each lane has a sum of its own. A library's products of four and of eight rows of f32 do not
// round more for more terms on some CPUs (MKL on Zen 4).
inline constexpr int64_t kPieceRows = 512;
inline constexpr int64_t kPieceColumns = 128 * static_cast<int64_t>(kLanes);

// sums[i][j] += x[i][0] * b[0][j] + ... over kDepth rows of B, for every column.
template <FloatType kType, int64_t kRows, int64_t kDepth>
void add_rows(const GemvArgs& g, int64_t row, const Storage<kType>* HWY_RESTRICT b, int64_t kk) {
  const Df d;
  constexpr auto lanes = static_cast<int64_t>(kLanes);
  float x[kRows][kDepth];
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t t = 0; t < kDepth; ++t) x[i][t] = g.x[(row + i) * g.k + kk + t];
  float* const sums = g.sums + row * g.sums_stride;
  int64_t j = 0;
  for (; j + lanes <= g.n; j += lanes) {
    Vf rows[kDepth];
#pragma GCC unroll 8
    for (int64_t t = 0; t < kDepth; ++t)
      rows[t] = load_as_f32<kType>(d, b + (kk + t) * g.b_stride + j);
#pragma GCC unroll 4
    for (int64_t i = 0; i < kRows; ++i) {
      Vf sum = hn::Mul(set(x[i][0]), rows[0]);
#pragma GCC unroll 8
      for (int64_t t = 1; t < kDepth; ++t) sum = hn::MulAdd(set(x[i][t]), rows[t], sum);
      float* const to = sums + i * g.sums_stride + j;
      store(hn::Add(load(to), sum), to);
    }
  }
  if (j == g.n) return;
  const auto rest = static_cast<size_t>(g.n - j);
  for (int64_t i = 0; i < kRows; ++i) {
    Vf sum = set(0.0F);
    for (int64_t t = 0; t < kDepth; ++t)
      sum = hn::MulAdd(set(x[i][t]), load_tail<kType>(d, b + (kk + t) * g.b_stride + j, rest), sum);
    float* const to = sums + i * g.sums_stride + j;
    store_tail(hn::Add(load_tail(to, rest), sum), to, rest);
  }
}

template <FloatType kType, int64_t kDepth>
void add_rows_all(const GemvArgs& g, const Storage<kType>* b, int64_t kk) {
  int64_t row = 0;
  for (; row + kPassRows <= g.m; row += kPassRows)
    add_rows<kType, kPassRows, kDepth>(g, row, b, kk);
  for (; row < g.m; ++row) add_rows<kType, 1, kDepth>(g, row, b, kk);
}

// The sums stay in L1 (the caller bounds n) while kUnrollRows rows of B stream by at a time.
template <FloatType kType>
void n_contiguous_typed(const GemvArgs& g) {
  const auto* b = static_cast<const Storage<kType>*>(g.b);
  GemvArgs piece = g;
  for (int64_t first = 0; first < g.k; first += kPieceRows) {
    if (first > 0) piece.sums = g.piece;
    for (int64_t i = 0; i < g.m; ++i) std::fill_n(piece.sums + i * g.sums_stride, g.n, 0.0F);
    const int64_t end = std::min(first + kPieceRows, g.k);
    int64_t kk = first;
    for (; kk + kUnrollRows <= end; kk += kUnrollRows)
      add_rows_all<kType, kUnrollRows>(piece, b, kk);
    for (; kk < end; ++kk) add_rows_all<kType, 1>(piece, b, kk);
    if (first == 0) continue;
    for (int64_t i = 0; i < g.m; ++i)
      for (int64_t j = 0; j < g.n; ++j)
        g.sums[i * g.sums_stride + j] += g.piece[i * g.sums_stride + j];
  }
}

HWY_INLINE float sum_of_lanes(Vf v) { return hn::GetLane(hn::SumOfLanes(Df(), v)); }

// sums[i][c] += dot(x[i], column c) from k `first` to `end`, for kColumns columns of contiguous k;
// = where `first` is 0.
template <FloatType kType, int64_t kRows, int64_t kColumns>
void dot_columns(const GemvArgs& g, int64_t row, const Storage<kType>* HWY_RESTRICT b,
                 int64_t column, int64_t first, int64_t end) {
  const Df d;
  constexpr auto lanes = static_cast<int64_t>(kLanes);
  const float* HWY_RESTRICT x = g.x + row * g.k;
  Vf sums[kRows][kColumns];
#pragma GCC unroll 4
  for (int64_t i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int64_t c = 0; c < kColumns; ++c) sums[i][c] = set(0.0F);
  int64_t kk = first;
  for (; kk + lanes <= end; kk += lanes) {
    Vf v[kColumns];
#pragma GCC unroll 4
    for (int64_t c = 0; c < kColumns; ++c)
      v[c] = load_as_f32<kType>(d, b + (column + c) * g.b_stride + kk);
#pragma GCC unroll 4
    for (int64_t i = 0; i < kRows; ++i) {
      const Vf factor = load(x + i * g.k + kk);
#pragma GCC unroll 4
      for (int64_t c = 0; c < kColumns; ++c) sums[i][c] = hn::MulAdd(factor, v[c], sums[i][c]);
    }
  }
  if (kk < end) {
    const auto rest = static_cast<size_t>(end - kk);
    for (int64_t c = 0; c < kColumns; ++c) {
      const Vf v = load_tail<kType>(d, b + (column + c) * g.b_stride + kk, rest);
      for (int64_t i = 0; i < kRows; ++i)
        sums[i][c] = hn::MulAdd(load_tail(x + i * g.k + kk, rest), v, sums[i][c]);
    }
  }
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t c = 0; c < kColumns; ++c) {
      float& to = g.sums[(row + i) * g.sums_stride + column + c];
      to = (first == 0 ? 0.0F : to) + sum_of_lanes(sums[i][c]);
    }
}

template <FloatType kType, int64_t kColumns>
void dot_columns_all(const GemvArgs& g, const Storage<kType>* b, int64_t column) {
  for (int64_t first = 0; first < g.k; first += kPieceColumns) {
    const int64_t end = std::min(first + kPieceColumns, g.k);
    int64_t row = 0;
    for (; row + kPassRows <= g.m; row += kPassRows)
      dot_columns<kType, kPassRows, kColumns>(g, row, b, column, first, end);
    for (; row < g.m; ++row) dot_columns<kType, 1, kColumns>(g, row, b, column, first, end);
  }
}

template <FloatType kType>
void k_contiguous_typed(const GemvArgs& g) {
  const auto* b = static_cast<const Storage<kType>*>(g.b);
  int64_t column = 0;
  for (; column + kUnroll <= g.n; column += kUnroll) dot_columns_all<kType, kUnroll>(g, b, column);
  for (; column < g.n; ++column) dot_columns_all<kType, 1>(g, b, column);
}

void n_contiguous(const GemvArgs& g) {
  switch (g.b_type) {
    case FloatType::f32: return n_contiguous_typed<FloatType::f32>(g);
    case FloatType::bf16: return n_contiguous_typed<FloatType::bf16>(g);
    case FloatType::f16: return n_contiguous_typed<FloatType::f16>(g);
  }
}

void k_contiguous(const GemvArgs& g) {
  switch (g.b_type) {
    case FloatType::f32: return k_contiguous_typed<FloatType::f32>(g);
    case FloatType::bf16: return k_contiguous_typed<FloatType::bf16>(g);
    case FloatType::f16: return k_contiguous_typed<FloatType::f16>(g);
  }
}

}  // namespace

constexpr GemvKernels table = {
    .target = kTargetName,
    .n_contiguous = n_contiguous,
    .k_contiguous = k_contiguous,
};

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epilogue::simd {

const GemvKernels& gemv_kernels() { return EPILOGUE_PICK(table); }

}  // namespace epilogue::simd
#endif  // HWY_ONCE
