// SPDX-License-Identifier: Apache-2.0
// Micro-kernels over packed panels, f32 and widened bf16, compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/simd/panels/widened.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which chooses the target:
#include <algorithm>

#include "backend/cpu/simd/lanes-inl.h"
#include "backend/cpu/simd/math-inl.h"
#include "backend/cpu/simd/panels/amx.h"
#include "backend/cpu/simd/panels/amx_tiles.h"
#include "backend/cpu/simd/panels/bf16_pairs.h"
#include "backend/cpu/simd/panels/i8_pairs.h"
#include "backend/cpu/simd/panels/packed_weights.h"
#include "backend/cpu/simd/panels/prefetch.h"
#include "backend/cpu/simd/panels/tile_size-inl.h"
#include "backend/cpu/simd/targets.h"
#include "base/cpu_features.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {
namespace {

// Row k of a panel, kNv vectors from `offset` on.
template <PanelType kType>
HWY_INLINE void load_row(const void* panel, int64_t offset, Vf (&out)[kNv]) {
  constexpr auto lanes = static_cast<int64_t>(kLanes);
  const hn::RebindToSigned<Df> di;
  if constexpr (kType == PanelType::bf16) {
    // A pair of vectors side by side, one in the lower and one in the upper halves of 32 bits
    // (interleave_vectors()): widening them is a shift and a mask.
    const hn::RebindToUnsigned<Df> du;
    const auto* const from = static_cast<const uint16_t*>(panel) + offset;
#pragma GCC unroll 2
    for (int64_t j = 0; j < kNv; j += 2) {
      const auto pair = hn::LoadU(du, reinterpret_cast<const uint32_t*>(from + j * lanes));
      out[j] = hn::BitCast(Df(), hn::ShiftLeft<16>(pair));
      out[j + 1] = hn::BitCast(Df(), hn::And(pair, hn::Set(du, 0xFFFF0000U)));
    }
    return;
  }
#pragma GCC unroll 4
  for (int64_t j = 0; j < kNv; ++j) {
    if constexpr (kType == PanelType::f32) {
      out[j] = load(static_cast<const float*>(panel) + offset + j * lanes);
    } else if constexpr (kType == PanelType::i8) {
      const hn::Rebind<int8_t, Df> d8;
      const auto steps = hn::LoadU(d8, static_cast<const int8_t*>(panel) + offset + j * lanes);
      out[j] = hn::ConvertTo(Df(), hn::PromoteTo(di, steps));
    }
  }
}

constexpr int64_t bytes_of(PanelType type) {
  return type == PanelType::f32 ? 4 : type == PanelType::bf16 ? 2 : 1;
}

// Sums that run side by side, each over every kChains-th k: few rows have registers to spare, wait
// for the latency of an addition otherwise, and shorter sums round less.
constexpr int64_t chains_of(int64_t rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }

// Steps of k written out one after the other, a multiple of the chains. 12 multiply-adds of 256
// bits take 6 cycles, which a loop of one step would lengthen; 24 of 512 bits hide it.
constexpr int64_t unroll_of(int64_t rows) { return HWY_TARGET == HWY_AVX3 ? chains_of(rows) : 4; }

// Steps between fetches of the next panel, at least: short loops would cost more than they hide.
inline constexpr int64_t kFetchSteps = 32;

// How many bytes ahead a tile fetches its panel into L1. Few rows read weights that come from L3 or
// memory, faster than the processor's own prefetching brings them across the ends of pages. Of many
// rows AVX-512's use up a panel faster than that brings it from L2. 0: not.
constexpr int64_t ahead_of(int64_t rows, Stream stream) {
  constexpr int64_t kStreamBytes = 6 << 10;
  constexpr int64_t kPanelBytes = 2 << 10;
  if (stream == Stream::first) return kStreamBytes;
  return HWY_TARGET == HWY_AVX3 && rows == kMr ? kPanelBytes : 0;
}

// Step k's share of that.
template <PanelType kType, int64_t kAhead>
HWY_INLINE void fetch_ahead(const void* panel, int64_t k) {
  if constexpr (kAhead > 0) {
    constexpr int64_t line = 64;
    constexpr int64_t bytes = kWidth * bytes_of(kType);
    const char* const from = static_cast<const char*>(panel) + k * bytes + kAhead;
    // Steps of less than a line: once per line.
    if (bytes < line && k % (line / std::min(bytes, line)) != 0) return;
#pragma GCC unroll 4
    for (int64_t i = 0; i < bytes; i += line) __builtin_prefetch(from + i, 0, 3);
  }
}

// sums += row k of the panel times column k of A's rows. A pointer for each row: compilers keep
// them in registers, and would not what they compute from a stride.
template <PanelType kType, int64_t kRows>
HWY_INLINE void add_products(const float* const (&rows)[kRows], const void* panel, int64_t k,
                             Vf (&sums)[kRows][kNv]) {
  Vf b[kNv];
  load_row<kType>(panel, k * kWidth, b);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
    const Vf factor = set(rows[i][k]);
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

// What is done with a finished sum of row `row`, vector j of the panel.
template <PanelType kType, int kParts>
HWY_INLINE void put(const PanelArgs& args, int64_t row, int64_t j, Vf sum) {
  constexpr auto lanes = static_cast<int64_t>(kLanes);
  constexpr int64_t part_vectors = kNv / kParts;
  constexpr int64_t part_width = kWidth / kParts;
  if constexpr (kType == PanelType::i8) sum = hn::Mul(sum, load(args.scales + j * lanes));
  float* const to = args.sums[j / part_vectors] + row * part_width + j % part_vectors * lanes;
  if (args.accumulate) sum = hn::Add(load(to), sum);
  if (kParts == 1 && args.store != nullptr) return finish(*args.store, row, j * lanes, sum);
  store(sum, to);
}

template <int64_t kChains, int64_t kRows>
HWY_INLINE Vf merged(const Vf (&sums)[kChains][kRows][kNv], int64_t i, int64_t j) {
  Vf sum = sums[0][i][j];
  if constexpr (kChains >= 2) sum = hn::Add(sum, sums[1][i][j]);
  if constexpr (kChains == 4) sum = hn::Add(sum, hn::Add(sums[2][i][j], sums[3][i][j]));
  return sum;
}

// One row: sums of args.depth steps each, which two others take in turn, all in registers. A call
// for each sum would cost a small product most of its time.
template <PanelType kType, int kParts>
void row_product(const PanelArgs& args) {
  constexpr int64_t chains = chains_of(1);
  const float* const rows[1] = {static_cast<const float*>(args.a)};
  const int64_t depth = args.depth > 0 ? args.depth : args.k;
  Vf totals[2][kNv];
#pragma GCC unroll 4
  for (int64_t j = 0; j < kNv; ++j) totals[0][j] = totals[1][j] = set(0.0F);
  int64_t turn = 0;
  for (int64_t begin = 0; begin < args.k; begin += depth, turn = 1 - turn) {
    const int64_t end = std::min(begin + depth, args.k);
    Vf sums[chains][1][kNv];
#pragma GCC unroll 4
    for (int64_t c = 0; c < chains; ++c) {
#pragma GCC unroll 4
      for (int64_t j = 0; j < kNv; ++j) sums[c][0][j] = set(0.0F);
    }
    int64_t k = begin;
    for (; k + chains <= end; k += chains) {
#pragma GCC unroll 4
      for (int64_t c = 0; c < chains; ++c) {
        fetch_ahead<kType, ahead_of(1, Stream::first)>(args.panel, k + c);
        add_products<kType, 1>(rows, args.panel, k + c, sums[c]);
      }
    }
    for (; k < end; ++k) add_products<kType, 1>(rows, args.panel, k, sums[0]);
      // Not totals[turn]: an array indexed by a variable would lie in memory.
#pragma GCC unroll 4
    for (int64_t j = 0; j < kNv; ++j) {
      const Vf sum = merged<chains, 1>(sums, 0, j);
      if (turn == 0) {
        totals[0][j] = hn::Add(totals[0][j], sum);
      } else {
        totals[1][j] = hn::Add(totals[1][j], sum);
      }
    }
  }
#pragma GCC unroll 4
  for (int64_t j = 0; j < kNv; ++j)
    put<kType, kParts>(args, 0, j, hn::Add(totals[0][j], totals[1][j]));
}

// kRows rows times one panel. Rows are compile-time so that few rows cost few registers and FMAs.
template <PanelType kType, int64_t kRows, int kParts, Stream kStream>
void tile(const PanelArgs& args, int64_t row) {
  constexpr int64_t chains = chains_of(kRows);
  constexpr int64_t unroll = unroll_of(kRows);
  const float* rows[kRows];
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i)
    rows[i] = static_cast<const float*>(args.a) + (row + i) * args.a_stride;
  Vf sums[chains][kRows][kNv];
#pragma GCC unroll 4
  for (int64_t c = 0; c < chains; ++c) {
#pragma GCC unroll 8
    for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int64_t j = 0; j < kNv; ++j) sums[c][i][j] = set(0.0F);
    }
  }
  constexpr int64_t step_bytes = kWidth * bytes_of(kType);
  const int64_t pieces = args.m / kMr;
  const NextPanel next(next_of(args, pieces), pieces, row / kMr, args.k, step_bytes, kFetchSteps);
  // Fetches, then steps without any, unrolled: the loop's own instructions would be a fifth.
  int64_t k = 0;
  for (int64_t group = 0; k + unroll <= args.k; ++group) {
    next.fetch(group);
    const int64_t end = std::min(args.k - unroll + 1, (group + 1) * next.group());
    for (; k < end; k += unroll) {
#pragma GCC unroll 4
      for (int64_t c = 0; c < unroll; ++c) {
        fetch_ahead<kType, ahead_of(kRows, kStream)>(args.panel, k + c);
        add_products<kType, kRows>(rows, args.panel, k + c, sums[c % chains]);
      }
    }
  }
  for (; k < args.k; ++k) add_products<kType, kRows>(rows, args.panel, k, sums[0]);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kNv; ++j)
      put<kType, kParts>(args, row + i, j, merged<chains, kRows>(sums, i, j));
  }
}

// Fewer rows than a whole tile, from `row` on.
template <PanelType kType, int kParts, Stream kStream>
void some_rows(const PanelArgs& args, int64_t row, int64_t rows) {
  switch (rows) {
    case 5: return tile<kType, std::min<int64_t>(5, kMr), kParts, kStream>(args, row);
    case 4: return tile<kType, std::min<int64_t>(4, kMr), kParts, kStream>(args, row);
    case 3: return tile<kType, 3, kParts, kStream>(args, row);
    case 2: return tile<kType, 2, kParts, kStream>(args, row);
    case 1: return tile<kType, 1, kParts, kStream>(args, row);
    default: return;
  }
}

template <PanelType kType, int kParts>
void panel_product(const PanelArgs& args) {
  if (args.m == 1) return row_product<kType, kParts>(args);
  if (args.m < kMr) return some_rows<kType, kParts, Stream::first>(args, 0, args.m);
  int64_t row = 0;
  if (args.m < kLeastPieces * kMr) {
    tile<kType, kMr, kParts, Stream::first>(args, 0);
    row = kMr;
  }
  for (; row + kMr <= args.m; row += kMr) tile<kType, kMr, kParts, Stream::no>(args, row);
  some_rows<kType, kParts, Stream::no>(args, row, args.m - row);
}

}  // namespace

constexpr PackedKernels table = {
    .target = kTargetName,
    .mr = kMr,
    .lanes = static_cast<int64_t>(kLanes),
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
  const CpuFeatures features = active_features();
  if (kernels.layout.width != kPairsWidth) return kernels;
  if (features.has(CpuFeature::avx512_vnni)) {
    constexpr auto i8 = static_cast<size_t>(PanelType::i8_pairs);
    kernels.one[i8] = i8_pairs_one;
    kernels.two[i8] = i8_pairs_two;
  }
  if (features.has(CpuFeature::avx512_bf16)) {
    constexpr auto pairs = static_cast<size_t>(PanelType::bf16_pairs);
    kernels.one[pairs] = bf16_pairs_one;
    kernels.two[pairs] = bf16_pairs_two;
    kernels.stores[pairs] = !features.has(CpuFeature::amx_bf16);
    if (features.has(CpuFeature::amx_bf16)) {
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
