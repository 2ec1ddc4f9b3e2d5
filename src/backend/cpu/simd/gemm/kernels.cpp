// SPDX-License-Identifier: Apache-2.0
// The GEMM's micro-kernel and write-back, compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/simd/gemm/kernels.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which chooses the target:
#include "backend/cpu/simd/gemm/kernels.h"
#include "backend/cpu/simd/panels/tile_size-inl.h"
#include "backend/cpu/simd/panels/widen-inl.h"
#include "backend/cpu/simd/targets.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {
namespace {

// Where a micro-kernel stores: out = alpha * sums + scale * addend, f32, unit column stride.
struct TileOut {
  float* out;
  int64_t out_stride;
  const float* addend;  // null: none
  int64_t addend_stride;
  float alpha;
  float scale;
};

// sums[i][j] = sum over k of a[i][k] * b[k][j]. Of the kMr rows of a only the first m exist; the
// others repeat the last one and the caller drops their sums.
template <int64_t kVectors>
void micro_kernel(int64_t k, const float* HWY_RESTRICT a, int64_t a_stride, int64_t m,
                  const float* HWY_RESTRICT b, int64_t b_stride, const TileOut& to) {
  Vf sums[kMr][kVectors];
  const float* rows[kMr];
#pragma GCC unroll 8
  for (int64_t i = 0; i < kMr; ++i) {
    rows[i] = a + std::min(i, m - 1) * a_stride;
#pragma GCC unroll 4
    for (int64_t j = 0; j < kVectors; ++j) sums[i][j] = set(0.0F);
  }
  for (int64_t kk = 0; kk < k; ++kk, b += b_stride) {
    Vf row[kVectors];
#pragma GCC unroll 4
    for (int64_t j = 0; j < kVectors; ++j) row[j] = load(b + j * kLanes);
#pragma GCC unroll 8
    for (int64_t i = 0; i < kMr; ++i) {
      const Vf factor = set(rows[i][kk]);
#pragma GCC unroll 4
      for (int64_t j = 0; j < kVectors; ++j) sums[i][j] = hn::MulAdd(factor, row[j], sums[i][j]);
    }
  }
  const Vf alpha = set(to.alpha);
  const Vf scale = set(to.scale);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kMr; ++i) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kVectors; ++j) {
      Vf v = hn::Mul(sums[i][j], alpha);
      const auto column = j * static_cast<int64_t>(kLanes);
      if (to.addend != nullptr)
        v = hn::MulAdd(load(to.addend + i * to.addend_stride + column), scale, v);
      store(v, to.out + i * to.out_stride + column);
    }
  }
}

using MicroKernel = void (*)(int64_t, const float*, int64_t, int64_t, const float*, int64_t,
                             const TileOut&);

// Narrow last panels compute only the vectors that they fill.
MicroKernel micro_kernel_of(int64_t vectors) {
  if constexpr (kNv == 4) {
    if (vectors == 4) return micro_kernel<4>;
    if (vectors == 3) return micro_kernel<3>;
  }
  return vectors == 2 ? micro_kernel<2> : micro_kernel<1>;
}

// One row of the addend as f32, in `buffer` unless it can be read where it lies.
template <FloatType kType>
const float* addend_row(const void* row, int64_t col_stride, int64_t n, float* buffer) {
  const auto* in = static_cast<const Storage<kType>*>(row);
  if constexpr (kType == FloatType::f32) {
    if (col_stride == 1) return in;
  }
  if (col_stride == 1) {
    widen_row<kType>(in, buffer, n);
  } else {
    for (int64_t j = 0; j < n; ++j) buffer[j] = widen_one<kType>(in + j * col_stride);
  }
  return buffer;
}

const float* addend_row(const WriteBack& to, int64_t row, int64_t column, int64_t n,
                        float* buffer) {
  const int64_t offset = row * to.addend_row_stride + column * to.addend_col_stride;
  const auto bytes = static_cast<int64_t>(size_of(to.addend_type));
  const void* p = static_cast<const char*>(to.addend) + offset * bytes;
  switch (to.addend_type) {
    case FloatType::f32: return addend_row<FloatType::f32>(p, to.addend_col_stride, n, buffer);
    case FloatType::bf16: return addend_row<FloatType::bf16>(p, to.addend_col_stride, n, buffer);
    case FloatType::f16: return addend_row<FloatType::f16>(p, to.addend_col_stride, n, buffer);
  }
  return nullptr;
}

template <FloatType kType>
void write_row(const float* sums, const float* addend, int64_t n, const WriteBack& to,
               Storage<kType>* out) {
  const Df d;
  const Vf alpha = set(to.alpha);
  const Vf scale = set(to.scale);
  int64_t j = 0;
  for (; j + static_cast<int64_t>(kLanes) <= n; j += kLanes) {
    Vf v = hn::Mul(load(sums + j), alpha);
    if (addend != nullptr) v = hn::MulAdd(load(addend + j), scale, v);
    store_from_f32<kType>(d, v, out + j);
  }
  if (j == n) return;
  const auto rest = static_cast<size_t>(n - j);
  Vf v = hn::Mul(load_tail(sums + j, rest), alpha);
  if (addend != nullptr) v = hn::MulAdd(load_tail(addend + j, rest), scale, v);
  store_tail<kType>(d, v, out + j, rest);
}

// In strips of kStrip columns, so that the addend's buffer is small.
template <FloatType kType>
void write_rows_typed(const float* sums, int64_t sums_stride, int64_t m, int64_t n,
                      const WriteBack& to) {
  constexpr int64_t kStrip = 512;
  HWY_ALIGN float buffer[kStrip];
  auto* out = static_cast<Storage<kType>*>(to.out);
  for (int64_t j = 0; j < n; j += kStrip) {
    const int64_t width = std::min(kStrip, n - j);
    const float* addend = nullptr;
    for (int64_t i = 0; i < m; ++i) {
      if (to.addend != nullptr && (addend == nullptr || to.addend_row_stride != 0))
        addend = addend_row(to, i, j, width, buffer);
      write_row<kType>(sums + i * sums_stride + j, addend, width, to,
                       out + i * to.out_row_stride + j);
    }
  }
}

void write_rows(const float* sums, int64_t sums_stride, int64_t m, int64_t n, const WriteBack& to) {
  switch (to.out_type) {
    case FloatType::f32: return write_rows_typed<FloatType::f32>(sums, sums_stride, m, n, to);
    case FloatType::bf16: return write_rows_typed<FloatType::bf16>(sums, sums_stride, m, n, to);
    case FloatType::f16: return write_rows_typed<FloatType::f16>(sums, sums_stride, m, n, to);
  }
}

WriteBack shifted(const WriteBack& to, int64_t row, int64_t column) {
  WriteBack moved = to;
  const auto out_bytes = static_cast<int64_t>(size_of(to.out_type));
  moved.out = static_cast<char*>(to.out) + (row * to.out_row_stride + column) * out_bytes;
  if (to.addend == nullptr) return moved;
  const auto bytes = static_cast<int64_t>(size_of(to.addend_type));
  const int64_t offset = row * to.addend_row_stride + column * to.addend_col_stride;
  moved.addend = static_cast<const char*>(to.addend) + offset * bytes;
  return moved;
}

// One panel of B, which stays in L2, against all rows of A, which stream by. Full f32 tiles are
// written from registers; others go through a tile in L1, of which only what exists is read back.
void run_panel(const BlockArgs& args, const float* b, int64_t width, const WriteBack& to) {
  constexpr auto lanes = static_cast<int64_t>(kLanes);
  const int64_t vectors = (width + lanes - 1) / lanes;
  const MicroKernel kernel = micro_kernel_of(vectors);
  HWY_ALIGN float tile[kMr * kWidth];
  HWY_ALIGN float row_buffer[kWidth];
  WriteBack out = to;
  // A row vector is widened once; it is then an f32 row like any other.
  if (to.addend != nullptr && to.addend_row_stride == 0) {
    out.addend = addend_row(to, 0, 0, width, row_buffer);
    out.addend_type = FloatType::f32;
    out.addend_col_stride = 1;
  }
  const bool plain_addend =
      out.addend == nullptr || (out.addend_type == FloatType::f32 && out.addend_col_stride == 1);
  const bool direct = plain_addend && out.out_type == FloatType::f32 && width == vectors * lanes;
  for (int64_t i = 0; i < args.m; i += kMr) {
    const int64_t rows = std::min(kMr, args.m - i);
    const float* a = args.a + i * args.a_row_stride;
    if (direct && rows == kMr) {
      const auto* addend = static_cast<const float*>(out.addend);
      const TileOut direct_to = {static_cast<float*>(out.out) + i * out.out_row_stride,
                                 out.out_row_stride,
                                 addend == nullptr ? nullptr : addend + i * out.addend_row_stride,
                                 out.addend_row_stride,
                                 out.alpha,
                                 out.scale};
      kernel(args.k, a, args.a_row_stride, rows, b, args.b_row_stride, direct_to);
    } else {
      const TileOut tile_to = {tile, kWidth, nullptr, 0, 1.0F, 0.0F};
      kernel(args.k, a, args.a_row_stride, rows, b, args.b_row_stride, tile_to);
      write_rows(tile, kWidth, rows, width, shifted(out, i, 0));
    }
  }
}

void block(const BlockArgs& args) {
  for (int64_t j = 0; j < args.n; j += kWidth)
    run_panel(args, args.b + j, std::min(kWidth, args.n - j), shifted(args.out, 0, j));
}

}  // namespace

constexpr GemmKernels table = {
    .target = kTargetName,
    .mr = kMr,
    .nr = kWidth,
    .block = block,
    .write_rows = write_rows,
};

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epilogue::simd {

const GemmKernels& gemm_kernels() {
  static constexpr std::array<const GemmKernels*, kTargets> tables = {
      HWY_CHOOSE_FALLBACK(table), HWY_CHOOSE_SSE4(table), HWY_CHOOSE_AVX2(table),
      HWY_CHOOSE_AVX3(table)};
  return pick(tables);
}

}  // namespace epilogue::simd
#endif  // HWY_ONCE
