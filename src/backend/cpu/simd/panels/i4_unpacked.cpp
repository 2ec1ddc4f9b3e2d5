// SPDX-License-Identifier: Apache-2.0
// Panels of 4-bit weights for many rows: what a call reads of a panel is unpacked into the panel of
// the kernel that would serve the same weights unrounded, and multiplied by that. All rows of a
// block share the unpacked panel, which stays in the core's caches.
#include <array>
#include <mutex>

#include "backend/cpu/simd/panels/i4_kernels.h"
#include "backend/cpu/simd/scratch.h"
#include "backend/cpu/simd/targets.h"

namespace epilogue::simd {

const char* decline_amx(const PanelUse& use);
const PanelKernel& amx_kernel();
const char* decline_bf16_pairs(const PanelUse& use);
const PanelKernel& bf16_pairs_kernel();
const PanelKernel& f32_kernel();
// In tiles from end to end (i4_tiles.cpp).
void i4_amx_tiles(const TileArgs& args);

namespace {

// Of f32 sums, a multiple of every group's size.
constexpr int64_t kUnpackedK = 256;

thread_local Scratch unpacked_values;
thread_local Scratch unpacked_panel;

// `args` with the panel unpacked for `kernel`.
PanelArgs unpacked(const PanelArgs& args, const PanelKernel& kernel) {
  const PanelLayout& layout = kernel.layout;
  const auto count = static_cast<size_t>(args.k * layout.width);
  float* const values = unpacked_values.get(count);
  i4_kernels().widen(*args.groups, args.panel, args.k, values);
  PanelArgs plain = args;
  plain.panel = values;
  if (layout.store != nullptr) {
    float* const panel = unpacked_panel.get(count * static_cast<size_t>(layout.weight_bytes) / 4);
    layout.store(values, args.k, nullptr, panel);
    plain.panel = panel;
  }
  // What follows is of 4 bits, and a fetch of as many bytes as these panels have would be wasted.
  plain.next = nullptr;
  return plain;
}

template <const PanelKernel& (*kInner)()>
void unpacked_one(const PanelArgs& args) {
  kInner().one(unpacked(args, kInner()));
}
template <const PanelKernel& (*kInner)()>
void unpacked_two(const PanelArgs& args) {
  kInner().two(unpacked(args, kInner()));
}

// As `inner`, reading the panels of 4-bit weights.
template <const PanelKernel& (*kInner)()>
PanelKernel over() {
  PanelKernel kernel = kInner();
  const PanelLayout& rows = kInner().layout;
  kernel.layout = i4_kernels().kernel.layout;
  kernel.layout.rows = rows.rows;
  kernel.layout.row_bytes = rows.row_bytes;
  kernel.layout.quantise_rows = nullptr;
  // Sums of f32 are cut (sum_depth.h), which must be at the end of a group.
  kernel.layout.most_k = rows.rows == FloatType::f32 ? kUnpackedK : 0;
  kernel.one = unpacked_one<kInner>;
  kernel.two = unpacked_two<kInner>;
  kernel.block = nullptr;
  kernel.strips = {};
  return kernel;
}

// One for each level, whose kernels differ.
template <const PanelKernel& (*kInner)()>
const PanelKernel& unpacked_kernel() {
  static std::array<std::once_flag, kTargets> made;
  static std::array<PanelKernel, kTargets> kernels;
  const auto level = static_cast<size_t>(active_target());
  std::call_once(made[level], [level] { kernels[level] = over<kInner>(); });
  return kernels[level];
}

// Why kernels of bf16 products do not serve the weights once they are unpacked.
const char* decline_bf16_inner(const PanelUse& use, const char* (*inner)(const PanelUse&)) {
  if (use.precision != Precision::i4) return "needs weights that may be rounded to 4 bits";
  return inner(use);
}

}  // namespace

const char* decline_i4_amx(const PanelUse& use) { return decline_bf16_inner(use, decline_amx); }
const PanelKernel& i4_amx_kernel() {
  static const PanelKernel kernel = [] {
    PanelKernel tiled = unpacked_kernel<amx_kernel>();
    tiled.tiles = i4_amx_tiles;
    return tiled;
  }();
  return kernel;
}

const char* decline_i4_bf16_pairs(const PanelUse& use) {
  return decline_bf16_inner(use, decline_bf16_pairs);
}
const PanelKernel& i4_bf16_pairs_kernel() { return unpacked_kernel<bf16_pairs_kernel>(); }

const char* decline_i4_f32(const PanelUse& use) {
  return use.precision == Precision::i4 ? nullptr : "needs weights that may be rounded to 4 bits";
}
const PanelKernel& i4_f32_kernel() { return unpacked_kernel<f32_kernel>(); }

}  // namespace epilogue::simd
