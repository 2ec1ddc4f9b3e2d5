// SPDX-License-Identifier: Apache-2.0
// Panels of 4-bit weights times rows of 16-bit integers, for few rows: weights are widened to 16
// bits in registers. Compiled once per target.
//
// Integers, not floats: a weight in f32 costs a shift, a mask, a conversion and a multiply-add for
// 8 of 256 bits, a pair of 16-bit integers a shift, a mask, a multiply-add and an addition for 16.
// One row then waits for memory, which is what 4 bits are for. Rows of 16 bits lose 1 / 65278 of
// their largest element, far less than the weights did. Sums of a group are exact: 15 * 32639 times
// 128, twice that with the zero taken away.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/simd/panels/i4.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which chooses the target:
#include <algorithm>
#include <cstring>

#include "backend/cpu/simd/panels/group_panel.h"
#include "backend/cpu/simd/panels/i4_kernels.h"
#include "backend/cpu/simd/panels/panel_product-inl.h"
#include "backend/cpu/simd/quantise.h"
#include "backend/cpu/simd/targets.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {
namespace {

using Di = hn::RebindToSigned<Df>;
using Du = hn::RebindToUnsigned<Df>;
using Vi = hn::Vec<Di>;
using Vu = hn::Vec<Du>;

// Rows at once: their sums and those of their groups fill the registers.
inline constexpr int64_t kI4Rows = 4;

// sum + the products of the two halves of each lane, as 16-bit integers.
HWY_INLINE Vi add_pairs(Vu weights, Vi rows, Vi sum) {
#if HWY_TARGET == HWY_SCALAR
  const uint32_t w = hn::GetLane(weights);
  const auto a = static_cast<uint32_t>(hn::GetLane(rows));
  const auto half = [](uint32_t x) {
    return static_cast<int32_t>(static_cast<int16_t>(x & 0xFFFF));
  };
  return hn::Set(Di(), hn::GetLane(sum) + half(w) * half(a) + half(w >> 16) * half(a >> 16));
#else
  const hn::Repartition<int16_t, Df> d16;
  Vi none = hn::Zero(Di());
  return hn::ReorderWidenMulAccumulate(Di(), hn::BitCast(d16, weights), hn::BitCast(d16, rows), sum,
                                       none);
#endif
}

// Two neighbours of a row, in all lanes.
HWY_INLINE Vi pair_of(const int16_t* a) {
  int32_t bits = 0;
  std::memcpy(&bits, a, sizeof bits);
  return hn::Set(Di(), bits);
}

template <FloatType kType>
HWY_INLINE Vf scales_of(const uint16_t* scales, int64_t j) {
  return load_as_f32<kType>(Df(), scales + j * static_cast<int64_t>(kLanes));
}

HWY_INLINE Vi zeros_of(const uint8_t* zeros, int64_t j) {
  return hn::PromoteTo(
      Di(), hn::LoadU(hn::Rebind<uint8_t, Di>(), zeros + j * static_cast<int64_t>(kLanes)));
}

// totals += sums of one group, its zeros taken away, times its scales.
template <int64_t kRows, FloatType kType>
HWY_INLINE void add_group(const Vi (&sums)[kRows][kNv], const GroupView& group,
                          const int32_t (&row_sums)[kRows], Vf (&totals)[kRows][kNv]) {
#pragma GCC unroll 4
  for (int64_t j = 0; j < kNv; ++j) {
    const Vi zero =
        group.zeros == nullptr ? hn::Set(Di(), int32_t{kMiddleStep}) : zeros_of(group.zeros, j);
    const Vf scale = scales_of<kType>(group.scales, j);
#pragma GCC unroll 4
    for (int64_t i = 0; i < kRows; ++i) {
      const Vi moved = hn::Sub(sums[i][j], hn::Mul(zero, hn::Set(Di(), row_sums[i])));
      totals[i][j] = hn::MulAdd(hn::ConvertTo(Df(), moved), scale, totals[i][j]);
    }
  }
}

template <int64_t kRows, Stream kStream>
void tile(const PanelArgs& args, int64_t row) {
  constexpr auto lanes = static_cast<int64_t>(kLanes);
  constexpr Ahead ahead = ahead_of_stream(1);
  const GroupFormat& f = *args.groups;
  const Vu mask = hn::Set(Du(), 0x000F000FU);
  const int16_t* a[kRows];
  const int32_t* row_sums[kRows];
#pragma GCC unroll 4
  for (int64_t i = 0; i < kRows; ++i) {
    a[i] = static_cast<const int16_t*>(args.a) + (row + i) * args.a_stride;
    row_sums[i] = args.row_sums + (row + i) * args.row_sums_stride;
  }
  Vf totals[kRows][kNv];
  clear(totals);
  for (int64_t g = 0; g * f.size < args.k; ++g) {
    const GroupView group = group_at(args.panel, f, kWidth, g);
    Vi sums[kRows][kNv];
#pragma GCC unroll 4
    for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int64_t j = 0; j < kNv; ++j) sums[i][j] = hn::Zero(Di());
    }
    const uint32_t* words = group.words;
    for (int64_t k = g * f.size; k < (g + 1) * f.size; k += 8, words += kWidth) {
      if constexpr (kStream == Stream::first) {
        const char* const from = reinterpret_cast<const char*>(words) + ahead.bytes;
#pragma GCC unroll 4
        for (int64_t b = 0; b < kWidth * 4; b += 64) fetch_line<ahead.into>(from + b);
      }
#pragma GCC unroll 4
      for (int64_t j = 0; j < kNv; ++j) {
        const Vu word = hn::LoadU(Du(), words + j * lanes);
        const Vu pairs[4] = {hn::And(word, mask), hn::And(hn::ShiftRight<4>(word), mask),
                             hn::And(hn::ShiftRight<8>(word), mask),
                             hn::And(hn::ShiftRight<12>(word), mask)};
#pragma GCC unroll 4
        for (int64_t i = 0; i < kRows; ++i) {
          // Two sums of two: one after the other they would wait for each other.
          const Vi zero = hn::Zero(Di());
          const Vi low = add_pairs(pairs[1], pair_of(a[i] + k + 2),
                                   add_pairs(pairs[0], pair_of(a[i] + k), zero));
          const Vi high = add_pairs(pairs[3], pair_of(a[i] + k + 6),
                                    add_pairs(pairs[2], pair_of(a[i] + k + 4), zero));
          sums[i][j] = hn::Add(sums[i][j], hn::Add(low, high));
        }
      }
    }
    int32_t moved[kRows];
#pragma GCC unroll 4
    for (int64_t i = 0; i < kRows; ++i)
      moved[i] = static_cast<int32_t>(static_cast<uint32_t>(row_sums[i][g + 1]) -
                                      static_cast<uint32_t>(row_sums[i][g]));
    if (f.scales == FloatType::f16) {
      add_group<kRows, FloatType::f16>(sums, group, moved, totals);
    } else {
      add_group<kRows, FloatType::bf16>(sums, group, moved, totals);
    }
  }
  HWY_ALIGN float memory[TileSums<kRows>::kFloats];
  const TileSums<kRows> out(args, row, memory);
#pragma GCC unroll 4
  for (int64_t i = 0; i < kRows; ++i) {
    const Vf scale = set(args.row_scales[row + i]);
#pragma GCC unroll 4
    for (int64_t j = 0; j < kNv; ++j) out.put(i, j, hn::Mul(totals[i][j], scale));
  }
  out.finish();
}

void i4_product(const PanelArgs& args) {
  all_rows<kI4Rows>(
      args.m, [&args](auto rows, auto stream, int64_t row) { tile<rows(), stream()>(args, row); });
}

void put_rows(const PanelArgs& args, int64_t row, int64_t rows, const float* sums) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < kNv; ++j)
      put_sum(args, row + i, j, load(sums + i * kWidth + j * static_cast<int64_t>(kLanes)));
}

// The values of a panel, [k][width], as the kernels of many rows take them.
template <FloatType kType>
void widen_groups(const GroupFormat& f, const void* panel, int64_t k, float* out) {
  constexpr auto lanes = static_cast<int64_t>(kLanes);
  const Vu mask = hn::Set(Du(), 0xFU);
  for (int64_t g = 0; g * f.size < k; ++g) {
    const GroupView group = group_at(panel, f, kWidth, g);
    for (int64_t j = 0; j < kNv; ++j) {
      const Vf scale = scales_of<kType>(group.scales, j);
      const Vi zero =
          group.zeros == nullptr ? hn::Set(Di(), int32_t{kMiddleStep}) : zeros_of(group.zeros, j);
      for (int64_t w = 0; w < f.size / 8; ++w) {
        Vu word = hn::LoadU(Du(), group.words + w * kWidth + j * lanes);
        float* const to = out + (g * f.size + w * 8) * kWidth + j * lanes;
        const auto put = [&](Vu step, int i) HWY_ATTR {
          const Vi moved = hn::Sub(hn::BitCast(Di(), hn::And(step, mask)), zero);
          store(hn::Mul(hn::ConvertTo(Df(), moved), scale), to + i * kWidth);
        };
        // As group_bit() says.
        put(word, 0);
        put(hn::ShiftRight<16>(word), 1);
        put(hn::ShiftRight<4>(word), 2);
        put(hn::ShiftRight<20>(word), 3);
        put(hn::ShiftRight<8>(word), 4);
        put(hn::ShiftRight<24>(word), 5);
        put(hn::ShiftRight<12>(word), 6);
        put(hn::ShiftRight<28>(word), 7);
      }
    }
  }
}

void widen_i4_panel(const GroupFormat& f, const void* panel, int64_t k, float* out) {
  return f.scales == FloatType::f16 ? widen_groups<FloatType::f16>(f, panel, k, out)
                                    : widen_groups<FloatType::bf16>(f, panel, k, out);
}

inline constexpr int kStepBits = 5;
static_assert(1 << kStepBits == kStepOne);
// Groups within kBytesK, at most.
inline constexpr int64_t kMostGroups = kBytesK / 32;

HWY_INLINE Vi zero_steps(const GroupView& group, int64_t j) {
  return group.zeros == nullptr ? hn::Set(Di(), int32_t{kMiddleStep}) : zeros_of(group.zeros, j);
}

// Both halves of a lane as its lower one.
HWY_INLINE Vu in_halves(Vi v) {
  const Vu low = hn::And(hn::BitCast(Du(), v), hn::Set(Du(), 0xFFFFU));
  return hn::Or(low, hn::ShiftLeft<16>(low));
}

// The scale of bytes that `count` groups share, and the ratios of theirs to it, in both halves of a
// word, [count][width].
template <FloatType kType>
void find_ratios(const GroupView* groups, int64_t count, uint32_t* ratios, float* scales) {
  constexpr auto lanes = static_cast<int64_t>(kLanes);
  for (int64_t j = 0; j < kNv; ++j) {
    Vf most = hn::Zero(Df());
    Vf nothing = hn::Zero(Df());  // NaN where a scale is not finite
    for (int64_t g = 0; g < count; ++g) {
      const Vf scale = scales_of<kType>(groups[g].scales, j);
      const Vi zero = zero_steps(groups[g], j);
      const Vi reach = hn::Max(zero, hn::Sub(hn::Set(Di(), int32_t{kMostSteps}), zero));
      most = hn::Max(most, hn::Mul(hn::Abs(scale), hn::ConvertTo(Df(), reach)));
      nothing = hn::MulAdd(scale, hn::Zero(Df()), nothing);
    }
    const Vf inverse = hn::IfThenElseZero(hn::Ge(most, set(kLeastReach)),
                                          hn::Div(set(float{kMostByte} * kRatioOne), most));
    store(hn::Add(hn::Mul(most, set(1 / float{kMostByte})), nothing), scales + j * lanes);
    for (int64_t g = 0; g < count; ++g) {
      const Vf ratio = hn::Mul(scales_of<kType>(groups[g].scales, j), inverse);
      hn::StoreU(in_halves(hn::NearestInt(ratio)), Du(), ratios + g * kWidth + j * lanes);
    }
  }
}

#if HWY_TARGET == HWY_SCALAR

// One column's word as bytes.
HWY_INLINE void put_bytes(Vu words, Vu zeros, Vu ratios, StepOrder order, int64_t j, int8_t* out) {
  const uint32_t word = hn::GetLane(words);
  const auto zero = static_cast<int32_t>(hn::GetLane(zeros) & 0xFFFF) / kStepOne;
  const int32_t ratio = static_cast<int16_t>(hn::GetLane(ratios) & 0xFFFF);
  for (int i = 0; i < 8; ++i) {
    const int32_t step = static_cast<int32_t>(word >> group_bit(i) & 0xFU) - zero;
    const int32_t byte = (step * ratio + kRatioOne / 2) >> 10;
    const int64_t beside = order == StepOrder::quads ? 4 : 2;
    out[(i / beside * kWidth + j) * beside + i % beside] = static_cast<int8_t>(byte);
  }
}

#else

// Of a shuffle: no byte.
inline constexpr uint8_t kNo = 0x80;

// The same of a vector of columns.
HWY_INLINE void put_bytes(Vu word, Vu zeros, Vu ratios, StepOrder order, int64_t j, int8_t* out) {
  const hn::Repartition<int16_t, Df> d16;
  const hn::Repartition<int8_t, Df> d8;
  const Vu mask = hn::Set(Du(), 0x000F000FU * kStepOne);
  const auto pair = [&](Vu steps) HWY_ATTR {
    const auto moved = hn::Sub(hn::BitCast(d16, hn::And(steps, mask)), hn::BitCast(d16, zeros));
    return hn::MulFixedPoint15(moved, hn::BitCast(d16, ratios));
  };
  const auto first = pair(hn::ShiftLeft<5>(word));
  const auto second = pair(hn::ShiftLeft<1>(word));
  const auto third = pair(hn::ShiftRight<3>(word));
  const auto fourth = pair(hn::ShiftRight<7>(word));
  if (order == StepOrder::pairs) {
    const hn::Rebind<int8_t, decltype(d16)> half;
    int8_t* const to = out + 2 * j;
    hn::StoreU(hn::DemoteTo(half, first), half, to);
    hn::StoreU(hn::DemoteTo(half, second), half, to + 2 * kWidth);
    hn::StoreU(hn::DemoteTo(half, third), half, to + 4 * kWidth);
    hn::StoreU(hn::DemoteTo(half, fourth), half, to + 6 * kWidth);
    return;
  }
  // Two pairs of a column side by side.
  alignas(16) static constexpr uint8_t kLow[16] = {0, 2,  kNo, kNo, 4,  6,  kNo, kNo,
                                                   8, 10, kNo, kNo, 12, 14, kNo, kNo};
  alignas(16) static constexpr uint8_t kHigh[16] = {kNo, kNo, 0, 2,  kNo, kNo, 4,  6,
                                                    kNo, kNo, 8, 10, kNo, kNo, 12, 14};
  const hn::Repartition<uint8_t, Df> du8;
  const auto low = hn::BitCast(d8, hn::LoadDup128(du8, kLow));
  const auto high = hn::BitCast(d8, hn::LoadDup128(du8, kHigh));
  const auto quad = [&](auto one, auto two) HWY_ATTR {
    return hn::Or(hn::TableLookupBytesOr0(hn::BitCast(d8, one), low),
                  hn::TableLookupBytesOr0(hn::BitCast(d8, two), high));
  };
  hn::StoreU(quad(first, second), d8, out + 4 * j);
  hn::StoreU(quad(third, fourth), d8, out + 4 * (kWidth + j));
}

#endif

HWY_INLINE void unpack_words(const uint32_t* words, int64_t count, StepOrder order,
                             const uint32_t* zeros, const uint32_t* ratios, int8_t* out) {
  for (int64_t w = 0; w < count; ++w, words += kWidth, out += 8 * kWidth)
    for (int64_t j = 0; j < kWidth; j += static_cast<int64_t>(kLanes))
      put_bytes(hn::LoadU(Du(), words + j), hn::LoadU(Du(), zeros + j), hn::LoadU(Du(), ratios + j),
                order, j, out);
}

void unpack_i4_panel(const GroupFormat& f, const void* panel, int64_t k, StepOrder order,
                     const UnpackedBytes& out) {
  constexpr auto lanes = static_cast<int64_t>(kLanes);
  int8_t* bytes = out.bytes;
  float* scales = out.scales;
  for (int64_t begin = 0; begin < k; begin += kBytesK, scales += kWidth) {
    const int64_t end = std::min(k, begin + kBytesK);
    const int64_t first = begin / f.size;
    const int64_t last = (end + f.size - 1) / f.size;
    GroupView groups[kMostGroups];
    uint32_t ratios[kMostGroups * kWidth];
    for (int64_t g = first; g < last; ++g) groups[g - first] = group_at(panel, f, kWidth, g);
    if (f.scales == FloatType::f16) {
      find_ratios<FloatType::f16>(groups, last - first, ratios, scales);
    } else {
      find_ratios<FloatType::bf16>(groups, last - first, ratios, scales);
    }
    for (int64_t g = first; g < last; ++g) {
      const GroupView& group = groups[g - first];
      uint32_t zeros[kWidth];
      for (int64_t j = 0; j < kNv; ++j)
        hn::StoreU(in_halves(hn::ShiftLeft<kStepBits>(zero_steps(group, j))), Du(),
                   zeros + j * lanes);
      const int64_t from = std::max(begin, g * f.size);
      const int64_t to = std::min(end, (g + 1) * f.size);
      unpack_words(group.words + (from - g * f.size) / 8 * kWidth, (to - from) / 8, order, zeros,
                   ratios + (g - first) * kWidth, bytes);
      bytes += (to - from) * kWidth;
    }
  }
}

void quantise_i4_rows(const float* in, int64_t in_stride, int64_t m, int64_t k, int64_t k_end,
                      void* out, int64_t stride, float* scales) {
  quantise_kernels().f32_to_split_i16(in, in_stride, m, k, k_end, static_cast<int16_t*>(out),
                                      stride, scales);
}

}  // namespace

constexpr I4Kernels table = {
    .kernel = {.layout = {.width = kWidth,
                          .weight_bytes = 0,  // GroupFormat says
                          .has_groups = true,
                          .quantise_rows = quantise_i4_rows,
                          .row_bytes = 2,
                          .most_k = kAnyK},
               .mr = kI4Rows,
               .lanes = static_cast<int64_t>(kLanes),
               .one = i4_product,
               .two = i4_product,
               .stores = true},
    .widen = widen_i4_panel,
    .unpack = unpack_i4_panel,
    .put = put_rows,
};

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epilogue::simd {

const I4Kernels& i4_kernels() { return EPILOGUE_PICK(table); }

const char* decline_i4_amx(const PanelUse& use);

const char* decline_i4(const PanelUse& use) {
  constexpr TileCosts kCosts = {.tiles = 220, .widen = 30, .row = 30};
  if (use.precision != Precision::i4) return "needs weights that may be rounded to 4 bits";
  if (use.rows > kFewI4Rows) return "needs few rows";
  const bool has_tiles = decline_i4_amx(use) == nullptr;
  return has_tiles && tiles_are_faster(kCosts, use.rows) ? "tiles are faster" : nullptr;
}

const PanelKernel& i4_kernel() { return i4_kernels().kernel; }

}  // namespace epilogue::simd
#endif  // HWY_ONCE
