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

// What put_sum() wants of a panel: scales are in the sums already.
struct GroupSums {
  static constexpr bool kHasScales = false;
};

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

template <int64_t kRows, int kParts, Stream kStream>
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
#pragma GCC unroll 4
  for (int64_t i = 0; i < kRows; ++i) {
    const Vf scale = set(args.row_scales[row + i]);
#pragma GCC unroll 4
    for (int64_t j = 0; j < kNv; ++j)
      put_sum<GroupSums, kParts>(args, row + i, j, hn::Mul(totals[i][j], scale));
  }
}

template <int kParts>
void i4_product(const PanelArgs& args) {
  all_rows<kI4Rows>(args.m, [&args](auto rows, auto stream, int64_t row) {
    tile<rows(), kParts, stream()>(args, row);
  });
}

template <int kParts>
void put_rows(const PanelArgs& args, int64_t row, int64_t rows, const float* sums) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < kNv; ++j)
      put_sum<GroupSums, kParts>(args, row + i, j,
                                 load(sums + i * kWidth + j * static_cast<int64_t>(kLanes)));
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

// Of four bytes x and y, each below 128: x - y.
HWY_INLINE uint32_t less(uint32_t x, uint32_t y) {
  constexpr uint32_t top = 0x80808080U;
  return ((x | top) - y) ^ top;
}

// A word's neighbours 0 to 3, and 4 to 7, in bytes (group_bit()).
HWY_INLINE uint32_t first_quad(uint32_t w) {
  return (w & 0xFU) | (w >> 8 & 0xF00U) | (w << 12 & 0xF0000U) | (w << 4 & 0xF000000U);
}
HWY_INLINE uint32_t second_quad(uint32_t w) {
  return (w >> 8 & 0xFU) | (w >> 16 & 0xF00U) | (w << 4 & 0xF0000U) | (w >> 4 & 0xF000000U);
}

void unpack_words(const uint32_t* words, int64_t count, StepOrder order, const uint32_t* zeros,
                  int8_t* out) {
  for (int64_t w = 0; w < count; ++w, words += kWidth, out += 8 * kWidth) {
    if (order == StepOrder::quads) {
      auto* const to = reinterpret_cast<uint32_t*>(out);
      for (int64_t j = 0; j < kWidth; ++j) {
        to[j] = less(first_quad(words[j]), zeros[j]);
        to[kWidth + j] = less(second_quad(words[j]), zeros[j]);
      }
    } else {
      auto* const to = reinterpret_cast<uint16_t*>(out);
      for (int t = 0; t < 4; ++t)
        for (int64_t j = 0; j < kWidth; ++j) {
          const uint32_t pair = words[j] >> (4 * t) & 0x000F000FU;
          to[t * kWidth + j] =
              static_cast<uint16_t>(less((pair | pair >> 8) & 0xFFFFU, zeros[j] & 0xFFFFU));
        }
    }
  }
}

// Integers of 8 bits, from -16 to 15, or from 0 to 15 beside their zeros.
void unpack_i4_panel(const GroupFormat& f, const void* panel, int64_t k, StepOrder order,
                     const UnpackedSteps& out) {
  constexpr auto lanes = static_cast<int64_t>(kLanes);
  for (int64_t g = 0; g * f.size < k; ++g) {
    const GroupView group = group_at(panel, f, kWidth, g);
    for (int64_t j = 0; j < kNv; ++j) {
      float* const scales = out.scales + g * kWidth + j * lanes;
      if (f.scales == FloatType::f16) {
        store(scales_of<FloatType::f16>(group.scales, j), scales);
      } else {
        store(scales_of<FloatType::bf16>(group.scales, j), scales);
      }
    }
    uint32_t zeros[kWidth];
    for (int64_t j = 0; j < kWidth; ++j) {
      const uint32_t zero = group.zeros == nullptr ? kMiddleStep : group.zeros[j];
      if (out.zeros != nullptr) out.zeros[g * kWidth + j] = static_cast<int32_t>(zero);
      zeros[j] = out.zeros != nullptr ? 0 : zero * 0x01010101U;
    }
    unpack_words(group.words, f.size / 8, order, zeros, out.steps + g * f.size * kWidth);
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
               .one = i4_product<1>,
               .two = i4_product<2>,
               .stores = true},
    .widen = widen_i4_panel,
    .unpack = unpack_i4_panel,
    .put_one = put_rows<1>,
    .put_two = put_rows<2>,
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
