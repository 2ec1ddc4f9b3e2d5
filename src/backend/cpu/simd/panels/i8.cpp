// SPDX-License-Identifier: Apache-2.0
// Panels of 8-bit integers times a scale per column, widened as they are read. Compiled once per
// target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/simd/panels/i8.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which chooses the target:
#include "backend/cpu/simd/panels/i8_rows.h"
#include "backend/cpu/simd/panels/kernel_list.h"
#include "backend/cpu/simd/panels/panel_product-inl.h"
#include "backend/cpu/simd/quantise.h"
#include "backend/cpu/simd/targets.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {
namespace {

struct I8Panel {
  static constexpr int64_t kStepBytes = kWidth;
  static constexpr bool kHasScales = true;
  explicit I8Panel(const void* p) : panel(static_cast<const int8_t*>(p)) {}
  const int8_t* panel;
  const int8_t* data() const { return panel; }
  HWY_INLINE void load(int64_t k, Vf (&out)[kNv]) const {
    const hn::Rebind<int8_t, Df> d8;
    const hn::RebindToSigned<Df> di;
#pragma GCC unroll 4
    for (int64_t j = 0; j < kNv; ++j) {
      const auto steps = hn::LoadU(d8, panel + k * kWidth + j * static_cast<int64_t>(kLanes));
      out[j] = hn::ConvertTo(Df(), hn::PromoteTo(di, steps));
    }
  }
};

void store_steps(const float* values, int64_t k, const float* scales, void* panel) {
  to_i8(values, k, kWidth, scales, static_cast<int8_t*>(panel));
}

}  // namespace

constexpr PanelKernel table = {
    .layout = {.width = kWidth, .weight_bytes = 1, .has_scales = true, .store = store_steps},
    .mr = kMr,
    .lanes = static_cast<int64_t>(kLanes),
    .one = panel_product<I8Panel, 1>,
    .two = panel_product<I8Panel, 2>,
    .stores = true,
};

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epilogue::simd {

const char* decline_i8(const PanelUse& use) {
  // Widening takes time for each weight, and more weights of 16 bits than of 32 come in that time;
  // fewer of either where they come from memory, not from L3.
  constexpr int64_t kCachedWeights = int64_t{16} << 20;
  const bool is_cached = use.count <= kCachedWeights;
  return decline_i8_weights(use, is_cached && use.weights != FloatType::f32 ? 2 : 4);
}

const PanelKernel& i8_kernel() { return EPILOGUE_PICK(table); }

}  // namespace epilogue::simd
#endif  // HWY_ONCE
