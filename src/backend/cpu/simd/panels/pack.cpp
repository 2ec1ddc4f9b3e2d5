// SPDX-License-Identifier: Apache-2.0
// Any strides and types into f32, A as rows and B as panels; compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/simd/panels/pack.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which chooses the target:
#include <hwy/cache_control.h>

#include <algorithm>

#include "backend/cpu/simd/panels/pack.h"
#include "backend/cpu/simd/panels/tile_size-inl.h"
#include "backend/cpu/simd/panels/widen-inl.h"
#include "backend/cpu/simd/targets.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE void transpose_square(Vf*) {}  // 1 x 1

#else

// Transposes the 4x4 blocks of four vectors: lane 4 b + c of v[r] goes to lane 4 b + r of v[c].
HWY_INLINE void transpose_blocks(Vf& v0, Vf& v1, Vf& v2, Vf& v3) {
  const Df d;
  const hn::Repartition<uint64_t, Df> d64;
  const auto a = hn::BitCast(d64, hn::InterleaveLower(d, v0, v1));  // 00 10 01 11
  const auto b = hn::BitCast(d64, hn::InterleaveLower(d, v2, v3));  // 20 30 21 31
  const auto e = hn::BitCast(d64, hn::InterleaveUpper(d, v0, v1));  // 02 12 03 13
  const auto f = hn::BitCast(d64, hn::InterleaveUpper(d, v2, v3));  // 22 32 23 33
  v0 = hn::BitCast(d, hn::InterleaveLower(d64, a, b));
  v1 = hn::BitCast(d, hn::InterleaveUpper(d64, a, b));
  v2 = hn::BitCast(d, hn::InterleaveLower(d64, e, f));
  v3 = hn::BitCast(d, hn::InterleaveUpper(d64, e, f));
}

// Lanes x lanes: first within 128-bit blocks, then the blocks themselves (2 x 2 or 4 x 4 of them).
HWY_INLINE void transpose_square(Vf* v) {
  [[maybe_unused]] const Df d;
#pragma GCC unroll 4
  for (size_t i = 0; i < kLanes; i += 4) transpose_blocks(v[i], v[i + 1], v[i + 2], v[i + 3]);
#if HWY_TARGET == HWY_AVX2
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i) {
    const Vf low = v[i];
    const Vf high = v[i + 4];
    v[i] = hn::ConcatLowerLower(d, high, low);
    v[i + 4] = hn::ConcatUpperUpper(d, high, low);
  }
#elif HWY_TARGET == HWY_AVX3
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i) {
    const Vf p = hn::ConcatLowerLower(d, v[i + 8], v[i]);       // v0.0 v0.1 v2.0 v2.1
    const Vf q = hn::ConcatLowerLower(d, v[i + 12], v[i + 4]);  // v1.0 v1.1 v3.0 v3.1
    const Vf r = hn::ConcatUpperUpper(d, v[i + 8], v[i]);
    const Vf s = hn::ConcatUpperUpper(d, v[i + 12], v[i + 4]);
    v[i] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(q), p);
    v[i + 4] = hn::OddEvenBlocks(q, hn::SwapAdjacentBlocks(p));
    v[i + 8] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(s), r);
    v[i + 12] = hn::OddEvenBlocks(s, hn::SwapAdjacentBlocks(r));
  }
#endif
}

#endif  // HWY_TARGET == HWY_SCALAR

// out[c][r] = in[r][c], c contiguous in `in` and r in `out`. Squares read and write whole vectors:
// with rows 4096 bytes apart all their lines fall into one set of L1 and would not survive there.
void transpose(const float* HWY_RESTRICT in, int64_t in_stride, int64_t rows, int64_t columns,
               float* HWY_RESTRICT out, int64_t out_stride) {
  constexpr auto lanes = static_cast<int64_t>(kLanes);
  const int64_t whole_rows = rows / lanes * lanes;
  const int64_t whole_columns = columns / lanes * lanes;
  for (int64_t r = 0; r < whole_rows; r += lanes)
    for (int64_t c = 0; c < whole_columns; c += lanes) {
      Vf v[kLanes];
#pragma GCC unroll 16
      for (int64_t i = 0; i < lanes; ++i) v[i] = load(in + (r + i) * in_stride + c);
      transpose_square(v);
#pragma GCC unroll 16
      for (int64_t i = 0; i < lanes; ++i) store(v[i], out + (c + i) * out_stride + r);
    }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = r < whole_rows ? whole_columns : 0; c < columns; ++c)
      out[c * out_stride + r] = in[r * in_stride + c];
}

// The same for any type; 16-bit rows pass through an f32 tile that stays in L1.
template <FloatType kType>
void transpose_widened(const Storage<kType>* in, int64_t in_stride, int64_t rows, int64_t columns,
                       float* HWY_RESTRICT out, int64_t out_stride) {
  if constexpr (kType == FloatType::f32) {
    transpose(in, in_stride, rows, columns, out, out_stride);
  } else {
    constexpr int64_t kRows = 16;
    constexpr int64_t kColumns = 128;
    HWY_ALIGN float tile[kRows * kColumns];
    for (int64_t r = 0; r < rows; r += kRows)
      for (int64_t c = 0; c < columns; c += kColumns) {
        const int64_t height = std::min(kRows, rows - r);
        const int64_t width = std::min(kColumns, columns - c);
        for (int64_t i = 0; i < height; ++i)
          widen_row<kType>(in + (r + i) * in_stride + c, tile + i * kColumns, width);
        transpose(tile, kColumns, height, width, out + c * out_stride + r, out_stride);
      }
  }
}

// out[i][j] = in[i][j] for any strides of `in`.
template <FloatType kType>
void widen_matrix(const Storage<kType>* in, int64_t row_stride, int64_t col_stride, int64_t rows,
                  int64_t columns, float* HWY_RESTRICT out, int64_t out_stride) {
  if (col_stride == 1) {
    // Short pieces of long rows: each lies in another page, where no hardware prefetcher follows.
    constexpr int64_t kAhead = 12;
    constexpr int64_t kShort = 64;
    constexpr int64_t kLine = 64 / sizeof(Storage<kType>);
    for (int64_t i = 0; i < rows; ++i) {
      if (columns <= kShort && i + kAhead < rows)
        for (int64_t j = 0; j < columns; j += kLine)
          hwy::Prefetch(in + (i + kAhead) * row_stride + j);
      widen_row<kType>(in + i * row_stride, out + i * out_stride, columns);
    }
  } else if (row_stride == 1) {
    transpose_widened<kType>(in, col_stride, columns, rows, out, out_stride);
  } else {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        out[i * out_stride + j] = widen_one<kType>(in + i * row_stride + j * col_stride);
  }
}

void widen_matrix(const void* in, FloatType type, int64_t row_stride, int64_t col_stride,
                  int64_t rows, int64_t columns, float* out, int64_t out_stride) {
  switch (type) {
    case FloatType::f32:
      return widen_matrix<FloatType::f32>(static_cast<const float*>(in), row_stride, col_stride,
                                          rows, columns, out, out_stride);
    case FloatType::bf16:
      return widen_matrix<FloatType::bf16>(static_cast<const uint16_t*>(in), row_stride, col_stride,
                                           rows, columns, out, out_stride);
    case FloatType::f16:
      return widen_matrix<FloatType::f16>(static_cast<const uint16_t*>(in), row_stride, col_stride,
                                          rows, columns, out, out_stride);
  }
}

void pack_rows(const PackSource& source, int64_t m, int64_t k, float* out, int64_t out_stride) {
  widen_matrix(source.data, source.type, source.outer_stride, source.k_stride, m, k, out,
               out_stride);
}

void pack_panel(const PackSource& source, int64_t n, int64_t k, float* out) {
  widen_matrix(source.data, source.type, source.k_stride, source.outer_stride, k, n, out, kWidth);
  if (n == kWidth) return;
  for (int64_t kk = 0; kk < k; ++kk)
    std::fill(out + kk * kWidth + n, out + (kk + 1) * kWidth, 0.0F);
}

}  // namespace

constexpr PackKernels table = {
    .target = kTargetName, .width = kWidth, .rows = pack_rows, .panel = pack_panel};

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epilogue::simd {

const PackKernels& pack_kernels() { return EPILOGUE_PICK(table); }

}  // namespace epilogue::simd
#endif  // HWY_ONCE
