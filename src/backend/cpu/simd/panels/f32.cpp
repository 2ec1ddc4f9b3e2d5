// SPDX-License-Identifier: Apache-2.0
// Panels of f32, and blocks of f32 where they lie; compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/simd/panels/f32.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which chooses the target:
#include "backend/cpu/simd/panels/kernel_list.h"
#include "backend/cpu/simd/panels/panel_product-inl.h"
#include "backend/cpu/simd/panels/strip_product-inl.h"
#include "backend/cpu/simd/panels/widen-inl.h"
#include "backend/cpu/simd/targets.h"
#include "base/ceil_div.h"
#include "base/cpu_features.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {
namespace {

// Rows of f32, `stride` apart.
struct F32Rows {
  static constexpr int64_t kStepBytes = 0;
  const float* rows;
  int64_t stride;
  const float* data() const { return rows; }
  template <int64_t kVectors>
  HWY_INLINE void load(int64_t k, Vf (&out)[kVectors]) const {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kVectors; ++j)
      out[j] = HWY_NAMESPACE::load(rows + k * stride + j * static_cast<int64_t>(kLanes));
  }
};

struct F32Panel {
  static constexpr int64_t kStepBytes = kWidth * 4;
  explicit F32Panel(const void* p) : panel(static_cast<const float*>(p)) {}
  const float* panel;
  const float* data() const { return panel; }
  HWY_INLINE void load(int64_t k, Vf (&out)[kNv]) const { F32Rows{panel, kWidth}.load(k, out); }
};

// One panel of a block: its columns, and where they go.
struct BlockPanel {
  const BlockArgs& args;
  const float* b;
  int64_t width;
  int64_t piece;  // of k, for one sum
  WriteBack out;
  bool is_direct;  // whole vectors of f32, and so is what is added
};

constexpr int64_t kSumUnit = 8;

// kRows rows of it. Sums of one piece of k are added up in a tile in L1. Results are written from
// registers, or go through that tile. One chain of sums: a row's bits do not depend on how many
// rows there are. Nothing is unrolled: the address of B's rows takes the registers that longer
// loops need.
template <int64_t kRows, int64_t kVectors>
void block_tile(const BlockPanel& p, int64_t row) {
  constexpr auto lanes = static_cast<int64_t>(kLanes);
  RowsInPlace<kRows> a;
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) a.rows[i] = p.args.a + (row + i) * p.args.a_stride;
  F32Rows b = {p.b, p.args.b_stride};
  HWY_ALIGN float tile[kRows * kWidth];
  const int64_t piece = p.piece;
  int64_t rest = p.args.k;
  for (; rest > piece; rest -= piece) {
    const bool is_first = rest == p.args.k;
    micro_kernel<kVectors, 1, 1, Ahead{}>(a, b, piece, NextPanel(nullptr, 1, 0, piece, 0, 1),
                                          [&](int64_t i, int64_t j, Vf sum) HWY_ATTR {
                                            float* const to = tile + i * kWidth + j * lanes;
                                            store(is_first ? sum : hn::Add(load(to), sum), to);
                                          });
#pragma GCC unroll 8
    for (int64_t i = 0; i < kRows; ++i) a.rows[i] += piece;
    b.rows += piece * b.stride;
  }
  const bool is_whole = rest == p.args.k;
  const bool is_direct = p.is_direct;
  const WriteBack& to = p.out;
  float* const out = is_direct ? static_cast<float*>(to.out) + row * to.out_row_stride : tile;
  const int64_t out_stride = is_direct ? to.out_row_stride : kWidth;
  const float* const addend =
      is_direct && to.addend != nullptr
          ? static_cast<const float*>(to.addend) + row * to.addend_row_stride
          : nullptr;
  const Vf alpha = set(is_direct ? to.alpha : 1.0F);
  const Vf scale = set(to.scale);
  micro_kernel<kVectors, 1, 1, Ahead{}>(
      a, b, rest, NextPanel(nullptr, 1, 0, rest, 0, 1), [&](int64_t i, int64_t j, Vf sum) HWY_ATTR {
        if (!is_whole) sum = hn::Add(load(tile + i * kWidth + j * lanes), sum);
        Vf v = hn::Mul(sum, alpha);
        if (addend != nullptr)
          v = hn::MulAdd(load(addend + i * to.addend_row_stride + j * lanes), scale, v);
        store(v, out + i * out_stride + j * lanes);
      });
  if (!is_direct) write_back_kernels().rows(tile, kWidth, kRows, p.width, moved(to, row, 0));
}

template <int64_t kVectors>
void block_panel(const BlockPanel& p) {
  const int64_t m = p.args.m;
  int64_t row = 0;
  for (; row + kMr <= m; row += kMr) block_tile<kMr, kVectors>(p, row);
  some_rows<kMr>(m - row, [&](auto rows) { block_tile<rows(), kVectors>(p, row); });
}

// Narrow last panels compute only the vectors that they fill.
void block_panel(const BlockPanel& p, int64_t vectors) {
  if constexpr (kNv == 4) {
    if (vectors == 4) return block_panel<4>(p);
    if (vectors == 3) return block_panel<3>(p);
  }
  return vectors == 2 ? block_panel<2>(p) : block_panel<1>(p);
}

// A panel of B stays in L2 while all rows of A stream by.
void block(const BlockArgs& args) {
  constexpr auto lanes = static_cast<int64_t>(kLanes);
  HWY_ALIGN float row_buffer[kWidth];
  const int64_t piece = even_piece(args.k, f32_sum_depth(lanes), kSumUnit);
  for (int64_t j = 0; j < args.n; j += kWidth) {
    const int64_t width = std::min(kWidth, args.n - j);
    const int64_t vectors = (width + lanes - 1) / lanes;
    BlockPanel p = {args, args.b + j, width, piece, moved(args.out, 0, j), false};
    // A row vector is widened once; it is then an f32 row like any other.
    if (p.out.addend != nullptr && p.out.addend_row_stride == 0) {
      p.out.addend =
          widened_row(p.out.addend, p.out.addend_type, p.out.addend_col_stride, width, row_buffer);
      p.out.addend_type = FloatType::f32;
      p.out.addend_col_stride = 1;
    }
    const bool plain_addend = p.out.addend == nullptr ||
                              (p.out.addend_type == FloatType::f32 && p.out.addend_col_stride == 1);
    p.is_direct = plain_addend && p.out.out_type == FloatType::f32 && width == vectors * lanes;
    block_panel(p, vectors);
  }
}

}  // namespace

constexpr PanelKernel table = {
    .layout = {.width = kWidth},
    .mr = kMr,
    .lanes = static_cast<int64_t>(kLanes),
    .one = panel_product<F32Panel>,
    .two = panel_product<F32Panel>,
    .block = block,
    .strips = strip_functions<F32Panel>(),
    .stores = true,
};

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epilogue::simd {

int64_t f32_sum_depth(int64_t lanes) {
  constexpr int64_t kWideLanes = 16;
  return lanes >= kWideLanes && is_intel_cpu() ? 256 : 160;
}

// Widened weights of any type.
const char* decline_f32(const PanelUse&) { return nullptr; }

const PanelKernel& f32_kernel() { return EPILOGUE_PICK(table); }

}  // namespace epilogue::simd
#endif  // HWY_ONCE
