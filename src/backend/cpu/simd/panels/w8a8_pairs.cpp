// SPDX-License-Identifier: Apache-2.0
// Panels of 8-bit weights times rows of 8-bit integers, on any level: both are widened to 16 bits
// and multiplied in pairs (pmaddwd), whose sums of 32 bits are exact. Compiled once per target.
//
// The same for rows of 16-bit integers, which stand for rows as they are: half of the instructions
// that widening each weight to f32 takes, so that any number of rows gains.
//
// Not pmaddubsw, which multiplies 8 bits by 8 bits: it adds two products in 16 bits and saturates
// at 32767, and unsigned rows reach 2 * 255 * 127. Rows or weights of 7 bits would fit and lose a
// bit for good; taking the rows' signs to the weights keeps all bits, but costs an instruction for
// each vector and row, as much as the narrower multiplication saves.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/simd/panels/w8a8_pairs.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which chooses the target:
#include <cstring>

#include "backend/cpu/simd/panels/pack_pairs.h"
#include "backend/cpu/simd/panels/panel_product-inl.h"
#include "backend/cpu/simd/panels/w8a8.h"
#include "backend/cpu/simd/quantise.h"
#include "backend/cpu/simd/scratch.h"
#include "backend/cpu/simd/targets.h"
#include "base/cpu_features.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {
namespace {

using Di = hn::RebindToSigned<Df>;
using Vi = hn::Vec<Di>;

#if HWY_TARGET == HWY_SCALAR

// Two neighbours along k.
struct Pair {
  int32_t first;
  int32_t second;
};
HWY_INLINE Pair columns_at(const int8_t* b) { return {b[0], b[1]}; }
HWY_INLINE Pair rows_at(const int16_t* a) { return {a[0], a[1]}; }
HWY_INLINE Vi add_pairs(Pair columns, Pair rows, Vi sum) {
  return hn::Set(Di(),
                 hn::GetLane(sum) + columns.first * rows.first + columns.second * rows.second);
}
using Columns = Pair;

#else

using D16 = hn::Repartition<int16_t, Df>;
using Columns = hn::Vec<D16>;

HWY_INLINE Columns columns_at(const int8_t* b) {
  return hn::PromoteTo(D16(), hn::LoadU(hn::Rebind<int8_t, D16>(), b));
}
// Two neighbours of a row, in all lanes.
HWY_INLINE Columns rows_at(const int16_t* a) {
  int32_t bits = 0;
  std::memcpy(&bits, a, sizeof bits);
  return hn::BitCast(D16(), hn::Set(Di(), bits));
}
HWY_INLINE Vi add_pairs(Columns columns, Columns rows, Vi sum) {
  Vi none = hn::Zero(Di());
  return hn::ReorderWidenMulAccumulate(Di(), columns, rows, sum, none);
}

#endif

// depth: how much of k sums of 32 bits hold. These sums are added up in f32, so that few rows read
// a panel as one run of memory.
template <int64_t kRows, Stream kStream>
void tile(const PanelArgs& args, int64_t row, int64_t depth) {
  constexpr auto lanes = static_cast<int64_t>(kLanes);
  constexpr int64_t step_bytes = 2 * kWidth;
  constexpr int64_t line_steps = std::max<int64_t>(1, 64 / step_bytes);
  // Twice as far as elsewhere: a line takes so few instructions that it arrives too late else.
  constexpr Ahead ahead = {.bytes = 8 << 10, .into = kIntoL2};
  const int16_t* a[kRows];
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i)
    a[i] = static_cast<const int16_t*>(args.a) + (row + i) * args.a_stride;
  const auto* b = static_cast<const int8_t*>(args.panel);
  Vf totals[kRows][kNv];
  clear(totals);
  const int64_t pieces = args.m / kMr;
  const NextPanel next(next_of(args, pieces), pieces, row / kMr, args.k / 2, step_bytes, 1);
  const int64_t steps = args.k / 2;
  int64_t step = 0;
  int64_t group = 0;
  while (step < steps) {
    const int64_t depth_end = std::min(steps, step + depth / 2);
    Vi sums[kRows][kNv];
#pragma GCC unroll 8
    for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int64_t j = 0; j < kNv; ++j) sums[i][j] = hn::Zero(Di());
    }
    while (step < depth_end) {
      if (step == group * next.group()) next.fetch(group++);
      const int64_t end = std::min(depth_end, group * next.group());
      const auto add_step = [&](int64_t at) HWY_ATTR {
        Columns columns[kNv];
#pragma GCC unroll 4
        for (int64_t j = 0; j < kNv; ++j)
          columns[j] = columns_at(b + at * step_bytes + 2 * j * lanes);
#pragma GCC unroll 8
        for (int64_t i = 0; i < kRows; ++i) {
          const Columns factor = rows_at(a[i] + 2 * at);
#pragma GCC unroll 4
          for (int64_t j = 0; j < kNv; ++j) sums[i][j] = add_pairs(columns[j], factor, sums[i][j]);
        }
      };
      if constexpr (kStream == Stream::first) {
        for (; step + line_steps <= end; step += line_steps) {
          for (int64_t i = 0; i < line_steps * step_bytes; i += 64)
            fetch_line<ahead.into>(b + step * step_bytes + ahead.bytes + i);
#pragma GCC unroll 4
          for (int64_t i = 0; i < line_steps; ++i) add_step(step + i);
        }
      }
      for (; step < end; ++step) add_step(step);
    }
#pragma GCC unroll 8
    for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int64_t j = 0; j < kNv; ++j)
        totals[i][j] = hn::Add(totals[i][j], hn::ConvertTo(Df(), sums[i][j]));
    }
  }
  HWY_ALIGN float memory[TileSums<kRows>::kFloats];
  const TileSums<kRows> out(args, row, memory);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
    const Vf row_scale = set(args.row_scales[row + i]);
#pragma GCC unroll 4
    for (int64_t j = 0; j < kNv; ++j) {
      const Vf scale = hn::Mul(row_scale, load(args.scales + j * lanes));
      out.put(i, j, hn::Mul(totals[i][j], scale));
    }
  }
  out.finish();
}

// One copy for all depths, which GCC would else make one for each: tiles take long to compile, and
// the depth is asked for once in many steps.
HWY_NOINLINE void pairs_product_of(const PanelArgs& args, int64_t depth) {
  all_rows<kMr>(args.m, [&args, depth](auto rows, auto stream, int64_t row) {
    tile<rows(), stream()>(args, row, depth);
  });
}

template <int64_t kDepth>
void pairs_product(const PanelArgs& args) {
  pairs_product_of(args, kDepth);
}

thread_local Scratch step_rows;

void store_pairs(const float* values, int64_t k, const float* scales, void* panel) {
  auto* const rows =
      reinterpret_cast<int8_t*>(step_rows.get(static_cast<size_t>(k * kWidth / 4 + 1)));
  to_i8(values, k, kWidth, scales, rows);
  interleave_rows(rows, k, kWidth, static_cast<int8_t*>(panel));
}

void widened_rows(const float* in, int64_t in_stride, int64_t m, int64_t k, int64_t k_end,
                  void* out, int64_t stride, float* scales) {
  quantise_kernels().f32_to_wide_i8(in, in_stride, m, k, k_end, static_cast<int16_t*>(out), stride,
                                    scales);
}

template <int64_t kDepth>
constexpr PanelKernel pairs_kernel(decltype(PanelLayout::quantise_rows) quantise_rows,
                                   int64_t most_k) {
  return {.layout = {.width = kWidth,
                     .k_unit = 2,
                     .weight_bytes = 1,
                     .has_scales = true,
                     .store = store_pairs,
                     .quantise_rows = quantise_rows,
                     .row_bytes = 2,
                     .most_k = most_k},
          .mr = kMr,
          .lanes = static_cast<int64_t>(kLanes),
          .one = pairs_product<kDepth>,
          .two = pairs_product<kDepth>,
          .stores = true};
}

void finish_sums(const IntegerSums& s) {
  constexpr auto lanes = static_cast<int64_t>(kLanes);
  for (int64_t i = 0; i < s.rows; ++i) {
    const Vf row_scale = set(s.row_scales[i]);
    for (int64_t j = 0; j < s.columns; j += lanes) {
      const Vf sum = hn::ConvertTo(Df(), hn::LoadU(Di(), s.sums + i * s.stride + j));
      Vf value = hn::Mul(sum, hn::Mul(row_scale, load(s.scales + j)));
      if (s.earlier != nullptr) value = hn::Add(load(s.earlier + i * s.out_stride + j), value);
      store(value, s.out + i * s.out_stride + j);
    }
  }
}

}  // namespace

constexpr W8a8Kernels table = {
    .kernel = pairs_kernel<kW8a8Depth>(widened_rows, kW8a8Depth),
    .of_i16_rows = pairs_kernel<kI16RowsDepth>(rows_as_i16, kAnyK),
    .finish = finish_sums,
};

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epilogue::simd {

const W8a8Kernels& w8a8_kernels() { return EPILOGUE_PICK(table); }

const char* decline_others_than_w8a8(const PanelUse& use) {
  const bool serves = use.precision == Precision::i8 && use.integer_rows;
  return serves ? nullptr : "needs weights and rows that may be rounded to 8 bits";
}

const char* decline_w8a8_pairs(const PanelUse& use) { return decline_others_than_w8a8(use); }
const PanelKernel& w8a8_pairs_kernel() { return w8a8_kernels().kernel; }

const char* decline_i8(const PanelUse& use) {
  if (use.precision != Precision::i8 || use.integer_rows)
    return "needs weights that may be rounded to 8 bits, and rows that may not";
  const bool has_dots =
      use.weights == FloatType::bf16 && !use.widens && cpu_has(CpuFeature::avx512_bf16);
  return has_dots ? "needs rows of f32, or a CPU without AVX512-BF16" : nullptr;
}
const PanelKernel& i8_kernel() { return w8a8_kernels().of_i16_rows; }

}  // namespace epilogue::simd
#endif  // HWY_ONCE
