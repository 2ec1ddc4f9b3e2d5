// SPDX-License-Identifier: Apache-2.0
// Micro-kernels over packed panels, f32 and widened bf16, compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/simd/packed_kernels.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which chooses the target:
#include <algorithm>

#include "backend/cpu/simd/lanes-inl.h"
#include "backend/cpu/simd/math-inl.h"
#include "backend/cpu/simd/packed_amx.h"
#include "backend/cpu/simd/packed_bf16.h"
#include "backend/cpu/simd/packed_gemm.h"
#include "backend/cpu/simd/packed_i8.h"
#include "backend/cpu/simd/packed_prefetch.h"
#include "backend/cpu/simd/packed_tiles.h"
#include "backend/cpu/simd/targets.h"
#include "base/cpu_features.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {
namespace {

// As in gemm_kernels.cpp: 6 x 4 vectors of AVX-512's 32 registers, 6 x 2 of AVX2's 16.
inline constexpr int64_t kMr = HWY_TARGET == HWY_SCALAR ? 4 : 6;
inline constexpr int64_t kNv = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_SCALAR ? 4 : 2;
inline constexpr int64_t kWidth = kNv * static_cast<int64_t>(kLanes);

template <PanelType kType>
HWY_INLINE Vf load_column(const void* panel, int64_t offset) {
  if constexpr (kType == PanelType::f32) {
    return load(static_cast<const float*>(panel) + offset);
  } else if constexpr (kType == PanelType::i8) {
    const hn::RebindToSigned<Df> di;
    const hn::Rebind<int8_t, Df> d8;
    const auto steps = hn::LoadU(d8, static_cast<const int8_t*>(panel) + offset);
    return hn::ConvertTo(Df(), hn::PromoteTo(di, steps));
  } else {
    return load_as_f32<FloatType::bf16>(Df(), static_cast<const uint16_t*>(panel) + offset);
  }
}

constexpr int64_t bytes_of(PanelType type) {
  return type == PanelType::f32 ? 4 : type == PanelType::bf16 ? 2 : 1;
}

// Sums that run side by side, each over every kChains-th k: few rows have registers to spare, wait
// for the latency of an addition otherwise, and shorter sums round less.
constexpr int64_t chains_of(int64_t rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }

// sums += row k of the panel times column k of A's rows.
template <PanelType kType, int64_t kRows>
HWY_INLINE void add_products(const float* a, int64_t stride, const void* panel, int64_t k,
                             Vf (&sums)[kRows][kNv]) {
  constexpr auto lanes = static_cast<int64_t>(kLanes);
  Vf b[kNv];
#pragma GCC unroll 4
  for (int64_t j = 0; j < kNv; ++j) b[j] = load_column<kType>(panel, k * kWidth + j * lanes);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
    const Vf factor = set(a[i * stride + k]);
#pragma GCC unroll 4
    for (int64_t j = 0; j < kNv; ++j) sums[i][j] = hn::MulAdd(factor, b[j], sums[i][j]);
  }
}

// As many of a vector's columns as there are, from column j on.
template <FloatType kType>
HWY_INLINE void store_columns(const PanelStore& s, int64_t row, int64_t j, Vf v) {
  auto* const to = static_cast<Storage<kType>*>(s.out) + row * s.stride + j;
  if (j + static_cast<int64_t>(kLanes) <= s.columns) return store_from_f32<kType>(Df(), v, to);
  if (j < s.columns) store_tail<kType>(Df(), v, to, static_cast<size_t>(s.columns - j));
}

HWY_INLINE void finish(const PanelStore& s, int64_t row, int64_t j, Vf sum) {
  if (s.bias != nullptr) sum = hn::Add(sum, load(s.bias + j));
  if (s.relu) sum = at_least(sum, 0.0F);
  if (s.type == FloatType::bf16) return store_columns<FloatType::bf16>(s, row, j, sum);
  store_columns<FloatType::f32>(s, row, j, sum);
}

// kRows rows times one panel. Rows are compile-time so that few rows cost few registers and FMAs.
template <PanelType kType, int64_t kRows, int kParts>
void tile(const PanelArgs& args, int64_t row) {
  constexpr auto lanes = static_cast<int64_t>(kLanes);
  constexpr int64_t chains = chains_of(kRows);
  constexpr int64_t part_vectors = kNv / kParts;
  constexpr int64_t part_width = kWidth / kParts;
  const auto* a = static_cast<const float*>(args.a) + row * args.a_stride;
  Vf sums[chains][kRows][kNv];
#pragma GCC unroll 4
  for (int64_t c = 0; c < chains; ++c) {
#pragma GCC unroll 8
    for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int64_t j = 0; j < kNv; ++j) sums[c][i][j] = set(0.0F);
    }
  }
  const NextPanel next(args.next, args.m / kMr, row / kMr, args.k, kWidth * bytes_of(kType));
  int64_t k = 0;
  for (; k + chains <= args.k; k += chains) {
#pragma GCC unroll 4
    for (int64_t c = 0; c < chains; ++c) {
      next.fetch(k + c);
      add_products<kType, kRows>(a, args.a_stride, args.panel, k + c, sums[c]);
    }
  }
  for (; k < args.k; ++k) add_products<kType, kRows>(a, args.a_stride, args.panel, k, sums[0]);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kNv; ++j) {
      Vf sum = sums[0][i][j];
      if constexpr (chains >= 2) sum = hn::Add(sum, sums[1][i][j]);
      if constexpr (chains == 4) sum = hn::Add(sum, hn::Add(sums[2][i][j], sums[3][i][j]));
      if constexpr (kType == PanelType::i8) sum = hn::Mul(sum, load(args.scales + j * lanes));
      float* const to =
          args.sums[j / part_vectors] + (row + i) * part_width + j % part_vectors * lanes;
      if (args.accumulate) sum = hn::Add(load(to), sum);
      if (kParts == 1 && args.store != nullptr) {
        finish(*args.store, row + i, j * lanes, sum);
      } else {
        store(sum, to);
      }
    }
  }
}

template <PanelType kType, int kParts>
void panel_product(const PanelArgs& args) {
  int64_t row = 0;
  for (; row + kMr <= args.m; row += kMr) tile<kType, kMr, kParts>(args, row);
  switch (args.m - row) {
    case 5: return tile<kType, std::min<int64_t>(5, kMr), kParts>(args, row);
    case 4: return tile<kType, std::min<int64_t>(4, kMr), kParts>(args, row);
    case 3: return tile<kType, 3, kParts>(args, row);
    case 2: return tile<kType, 2, kParts>(args, row);
    case 1: return tile<kType, 1, kParts>(args, row);
    default: return;
  }
}

}  // namespace

constexpr PackedKernels table = {
    .target = kTargetName,
    .mr = kMr,
    .layout = {.width = kWidth},
    .one = {panel_product<PanelType::f32, 1>, panel_product<PanelType::bf16, 1>,
            panel_product<PanelType::i8, 1>, nullptr, nullptr},
    .two = {panel_product<PanelType::f32, 2>, panel_product<PanelType::bf16, 2>,
            panel_product<PanelType::i8, 2>, nullptr, nullptr},
    .stores = {true, true, true, false, false},
};

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epilogue::simd {

PackedKernels packed_kernels() {
  static constexpr std::array<const PackedKernels*, kTargets> tables = {
      HWY_CHOOSE_FALLBACK(table), HWY_CHOOSE_SSE4(table), HWY_CHOOSE_AVX2(table),
      HWY_CHOOSE_AVX3(table)};
  PackedKernels kernels = pick(tables);
  if (active_isa() >= Isa::avx512_bf16 && kernels.layout.width == kPairsWidth) {
    constexpr auto i8 = static_cast<size_t>(PanelType::i8_pairs);
    kernels.one[i8] = i8_pairs_one;
    kernels.two[i8] = i8_pairs_two;
    constexpr auto pairs = static_cast<size_t>(PanelType::bf16_pairs);
    kernels.one[pairs] = bf16_pairs_one;
    kernels.two[pairs] = bf16_pairs_two;
    kernels.stores[pairs] = active_isa() < Isa::amx;
    if (active_isa() >= Isa::amx) {
      kernels.one[pairs] = amx_one;
      kernels.two[pairs] = amx_two;
      kernels.layout.pairs_k = kTileK;
      kernels.mr = 2 * kTileRows;
      kernels.overlap_rows = kLeastTileRows;
    }
  }
  return kernels;
}

}  // namespace epilogue::simd
#endif  // HWY_ONCE
