// SPDX-License-Identifier: Apache-2.0
// Panels of 4-bit weights times rows of 8-bit integers, for many rows: what a call reads of a panel
// is unpacked once, into bytes of one scale for kBytesK of k (i4_kernels.h), and all rows of the
// block are multiplied by these with the kernels of 8-bit weights. Sums over kBytesK are exact
// integers, the same on every level:
//
//   out[i][j] = sum over blocks b of scales[b][j] * row_scales[i] * (sum over k in b of a[i][k]
//   bytes[k][j])
//
// Not sums of each group, whose integers would be smaller: short groups take longer to scale than
// to make. (pmaddubsw would hold steps of 4 bits without saturation, but no bytes.)
#include <algorithm>
#include <array>
#include <mutex>

#include "backend/cpu/simd/panels/w8a8.h"
#include "backend/cpu/simd/scratch.h"
#include "backend/cpu/simd/targets.h"
#include "base/ceil_div.h"

namespace epilogue::simd {

const char* decline_w8a8_amx_tiled(const PanelUse& use);
const PanelKernel& w8a8_amx_kernel();
const char* decline_w8a8_dots(const PanelUse& use);
const PanelKernel& w8a8_dots_kernel();
const char* decline_w8a8_avx_dots(const PanelUse& use);
const PanelKernel& w8a8_avx_dots_kernel();
const PanelKernel& w8a8_pairs_kernel();
// In tiles from end to end (i4_tiles.cpp).
void w4a8_amx_tiles(const TileArgs& args);

namespace {

// An unpacked panel, in memory of this thread until the next call.
struct Unpacked {
  const int8_t* bytes;
  const float* scales;
};

thread_local Scratch byte_panel;
thread_local Scratch scale_panel;
thread_local Scratch sum_panel;

Unpacked unpack(const PanelArgs& args, int64_t width, StepOrder order) {
  auto* const bytes = reinterpret_cast<int8_t*>(
      byte_panel.get(static_cast<size_t>(args.k * width / int64_t{sizeof(float)})));
  float* const scales = scale_panel.get(static_cast<size_t>(ceil_div(args.k, kBytesK) * width));
  i4_kernels().unpack(*args.groups, args.panel, args.k, order, {bytes, scales});
  return {bytes, scales};
}

}  // namespace

void w4a8_product(const PanelArgs& args, const PanelLayout& inner, StepOrder order,
                  PanelFunction kernel) {
  const Unpacked panel = unpack(args, inner.width, order);
  const int64_t unit = w4a8_sum_unit(*args.groups);
  PanelArgs block = args;
  // Of a block alone: what comes before it, and, at the place where the kernels look, after it.
  constexpr int64_t stride = kBytesK / kQuadsK + 1;
  auto* const sums =
      reinterpret_cast<int32_t*>(sum_panel.get(static_cast<size_t>(stride * args.m)));
  block.row_sums = sums;
  block.row_sums_stride = stride;
  block.next = nullptr;
  block.store = nullptr;
  block.work = nullptr;
  for (int64_t k = 0; k < args.k; k += kBytesK) {
    block.k = std::min(kBytesK, args.k - k);
    block.a = static_cast<const char*>(args.a) + k * inner.row_bytes;
    block.panel = panel.bytes + k * inner.width;
    block.scales = panel.scales + k / kBytesK * inner.width;
    for (int64_t i = 0; i < args.m; ++i) {
      const int32_t* const before = args.row_sums + i * args.row_sums_stride;
      sums[stride * i] = before[k / unit];
      sums[stride * i + ceil_div(block.k, kQuadsK)] = before[(k + block.k) / unit];
    }
    block.accumulate = args.accumulate || k > 0;
    kernel(block);
  }
}

namespace {

// A tile takes 64 of k: what is left of 32 goes to the dot products, whose panels are the same.
void amx_block_one(const PanelArgs& args) {
  args.k % kQuadsK == 0 ? w8a8_amx_kernel().one(args) : w8a8_dots_one(args);
}
void amx_block_two(const PanelArgs& args) {
  args.k % kQuadsK == 0 ? w8a8_amx_kernel().two(args) : w8a8_dots_two(args);
}
void amx_one(const PanelArgs& args) {
  w4a8_product(args, w8a8_amx_kernel().layout, StepOrder::quads, amx_block_one);
}
void amx_two(const PanelArgs& args) {
  w4a8_product(args, w8a8_amx_kernel().layout, StepOrder::quads, amx_block_two);
}

template <const PanelKernel& (*kInner)(), StepOrder kOrder>
void blocks_one(const PanelArgs& args) {
  w4a8_product(args, kInner().layout, kOrder, kInner().one);
}
template <const PanelKernel& (*kInner)(), StepOrder kOrder>
void blocks_two(const PanelArgs& args) {
  w4a8_product(args, kInner().layout, kOrder, kInner().two);
}

// As `inner`, reading the panels of 4-bit weights.
PanelKernel over(const PanelKernel& inner, PanelFunction one, PanelFunction two) {
  PanelKernel kernel = inner;
  kernel.layout = i4_kernels().kernel.layout;
  kernel.layout.quantise_rows = inner.layout.quantise_rows;
  kernel.layout.row_bytes = inner.layout.row_bytes;
  kernel.layout.most_k = kAnyK;
  kernel.layout.sum_unit = kBytesK;
  kernel.one = one;
  kernel.two = two;
  kernel.block = nullptr;
  kernel.stores = false;
  kernel.overlap_rows = 0;
  return kernel;
}

// The inner kernel of pairs differs by level.
const PanelKernel& pairs_of_level() {
  static std::array<std::once_flag, kTargets> made;
  static std::array<PanelKernel, kTargets> kernels;
  const auto level = static_cast<size_t>(active_target());
  std::call_once(made[level], [level] {
    kernels[level] = over(w8a8_pairs_kernel(), blocks_one<w8a8_pairs_kernel, StepOrder::pairs>,
                          blocks_two<w8a8_pairs_kernel, StepOrder::pairs>);
  });
  return kernels[level];
}

const char* decline_others_than_w4a8(const PanelUse& use) {
  const bool serves = use.precision == Precision::i4 && use.integer_rows;
  if (!serves) return "needs weights that may be rounded to 4 bits, and rows to 8";
  return use.rows > kFewI4Rows ? nullptr : "few rows keep their bits";
}

// The same of weights of 8 bits.
PanelUse unpacked_use(const PanelUse& use) {
  PanelUse wide = use;
  wide.precision = Precision::i8;
  return wide;
}

}  // namespace

const char* decline_w4a8_amx(const PanelUse& use) {
  if (const char* reason = decline_others_than_w4a8(use)) return reason;
  return decline_w8a8_amx_tiled(unpacked_use(use));
}
const PanelKernel& w4a8_amx_kernel() {
  static const PanelKernel kernel = [] {
    PanelKernel made = over(w8a8_amx_kernel(), amx_one, amx_two);
    made.tiles = w4a8_amx_tiles;
    return made;
  }();
  return kernel;
}

const char* decline_w4a8_dots(const PanelUse& use) {
  if (const char* reason = decline_others_than_w4a8(use)) return reason;
  return decline_w8a8_dots(unpacked_use(use));
}
const PanelKernel& w4a8_dots_kernel() {
  static const PanelKernel kernel =
      over(w8a8_dots_kernel(), blocks_one<w8a8_dots_kernel, StepOrder::quads>,
           blocks_two<w8a8_dots_kernel, StepOrder::quads>);
  return kernel;
}

const char* decline_w4a8_avx_dots(const PanelUse& use) {
  if (const char* reason = decline_others_than_w4a8(use)) return reason;
  return decline_w8a8_avx_dots(unpacked_use(use));
}
const PanelKernel& w4a8_avx_dots_kernel() {
  static const PanelKernel kernel =
      over(w8a8_avx_dots_kernel(), blocks_one<w8a8_avx_dots_kernel, StepOrder::quads>,
           blocks_two<w8a8_avx_dots_kernel, StepOrder::quads>);
  return kernel;
}

const char* decline_w4a8_pairs(const PanelUse& use) { return decline_others_than_w4a8(use); }
const PanelKernel& w4a8_pairs_kernel() { return pairs_of_level(); }

}  // namespace epilogue::simd
