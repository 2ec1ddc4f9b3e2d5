// SPDX-License-Identifier: Apache-2.0
// Panels of bf16, widened as they are read: half the bytes of f32, for few rows. Compiled once per
// target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/simd/panels/bf16.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which chooses the target:
#include "backend/cpu/simd/panels/kernel_list.h"
#include "backend/cpu/simd/panels/panel_product-inl.h"
#include "backend/cpu/simd/scratch.h"
#include "backend/cpu/simd/targets.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {
namespace {

// Two vectors' columns lie pair by pair, one in the lower and one in the upper halves of 32 bits:
// widening them is a shift and a mask.
struct Bf16Panel {
  static constexpr int64_t kStepBytes = kWidth * 2;
  explicit Bf16Panel(const void* p) : panel(static_cast<const uint16_t*>(p)) {}
  const uint16_t* panel;
  const uint16_t* data() const { return panel; }
  HWY_INLINE void load(int64_t k, Vf (&out)[kNv]) const {
    const hn::RebindToUnsigned<Df> du;
    const uint16_t* const from = panel + k * kWidth;
#pragma GCC unroll 2
    for (int64_t j = 0; j < kNv; j += 2) {
      const auto pair =
          hn::LoadU(du, reinterpret_cast<const uint32_t*>(from + j * static_cast<int64_t>(kLanes)));
      out[j] = hn::BitCast(Df(), hn::ShiftLeft<16>(pair));
      out[j + 1] = hn::BitCast(Df(), hn::And(pair, hn::Set(du, 0xFFFF0000U)));
    }
  }
};

thread_local Scratch bf16_rows;

// Of each row column j and column j + kLanes of two vectors side by side.
void store_pairs_of_vectors(const float* values, int64_t k, const float*, void* panel) {
  constexpr auto lanes = static_cast<int64_t>(kLanes);
  const int64_t count = k * kWidth;
  auto* const in = reinterpret_cast<uint16_t*>(bf16_rows.get(static_cast<size_t>(count + 1) / 2));
  auto* const out = static_cast<uint16_t*>(panel);
  from_f32(FloatType::bf16, values, in, static_cast<size_t>(count));
  for (int64_t at = 0; at < count; at += 2 * lanes)
    for (int64_t j = 0; j < lanes; ++j) {
      out[at + 2 * j] = in[at + j];
      out[at + 2 * j + 1] = in[at + lanes + j];
    }
}

}  // namespace

constexpr PanelKernel table = {
    .layout = {.width = kWidth, .weight_bytes = 2, .store = store_pairs_of_vectors},
    .mr = kMr,
    .lanes = static_cast<int64_t>(kLanes),
    .one = panel_product<Bf16Panel>,
    .two = panel_product<Bf16Panel>,
    .stores = true,
};

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epilogue::simd {

const char* decline_bf16(const PanelUse& use) {
  // Up to so many the weights' bytes, not the arithmetic, are the limit.
  constexpr int64_t kFewRows = 16;
  if (use.weights != FloatType::bf16 || use.widens) return "needs bf16 weights";
  if (use.packs_once) return "needs weights that are packed once and read often";
  return use.rows <= kFewRows ? nullptr : "needs few rows";
}

const PanelKernel& bf16_kernel() { return EPILOGUE_PICK(table); }

}  // namespace epilogue::simd
#endif  // HWY_ONCE
