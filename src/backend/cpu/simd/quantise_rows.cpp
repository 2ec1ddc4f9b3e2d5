// SPDX-License-Identifier: Apache-2.0
// Rows as integers, compiled once per target. Every target gives the same integers: they are the
// nearest to the same products.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/simd/quantise_rows.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which chooses the target:
#include <algorithm>
#include <limits>

#include "backend/cpu/simd/lanes-inl.h"
#include "backend/cpu/simd/quantise.h"
#include "backend/cpu/simd/targets.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {
namespace {

using Di = hn::RebindToSigned<Df>;

// kMost: the largest magnitude becomes this one.
template <FloatType kFrom, int kMost, class T>
void to_integers(const Storage<kFrom>* in, int64_t in_stride, int64_t m, int64_t k, int64_t k_end,
                 T* out, int64_t stride, float* scales) {
  const Df d;
  const hn::Rebind<T, Di> narrow;
  const auto n = static_cast<size_t>(k);
  const auto whole = n / kLanes * kLanes;
  constexpr auto most = static_cast<float>(kMost);
  for (int64_t i = 0; i < m; ++i, in += in_stride, out += stride) {
    Vf magnitudes = hn::Zero(d);
    Vf zeros = hn::Zero(d);  // NaN exactly where an element is not finite
    const auto look = [&](Vf x) HWY_ATTR {
      magnitudes = hn::Max(magnitudes, hn::Abs(x));
      zeros = hn::Add(zeros, hn::Mul(x, hn::Zero(d)));
    };
    for (size_t j = 0; j < whole; j += kLanes) look(load_as_f32<kFrom>(d, in + j));
    if (whole < n) look(load_tail<kFrom>(d, in + whole, n - whole));
    const float zero = hn::GetLane(hn::SumOfLanes(d, zeros));
    const bool is_finite = zero == 0;
    const float largest = is_finite ? hn::GetLane(hn::MaxOfLanes(d, magnitudes)) : 0.0F;
    const float inverse = largest > 0 ? most / largest : 0.0F;
    // The inverse of a magnitude near the smallest float is infinite: such a row is zeros.
    const bool usable = inverse <= std::numeric_limits<float>::max();
    scales[i] = !is_finite ? zero : usable ? largest / most : 0.0F;
    if (!is_finite || !usable || largest == 0) {
      std::fill(out, out + k_end, T{0});
      continue;
    }
    const Vf factor = hn::Set(d, inverse);
    for (size_t j = 0; j < whole; j += kLanes) {
      const auto integers = hn::NearestInt(hn::Mul(load_as_f32<kFrom>(d, in + j), factor));
      hn::StoreU(hn::DemoteTo(narrow, integers), narrow, out + j);
    }
    if (whole < n) {
      HWY_ALIGN int32_t lanes[kLanes];
      const Vf rest = load_tail<kFrom>(d, in + whole, n - whole);
      hn::Store(hn::NearestInt(hn::Mul(rest, factor)), Di(), lanes);
      for (size_t j = whole; j < n; ++j) out[j] = static_cast<T>(lanes[j - whole]);
    }
    std::fill(out + k, out + k_end, T{0});
  }
}

}  // namespace

constexpr QuantiseKernels table = {
    .f32_to_i8 = to_integers<FloatType::f32, 127, int8_t>,
    .bf16_to_i8 = to_integers<FloatType::bf16, 127, int8_t>,
    .f32_to_wide_i8 = to_integers<FloatType::f32, 127, int16_t>,
    .f32_to_i16 = to_integers<FloatType::f32, 32767, int16_t>,
    .f32_to_split_i16 = to_integers<FloatType::f32, 127 * 256 + 127, int16_t>,
};

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epilogue::simd {

const QuantiseKernels& quantise_kernels() { return EPILOGUE_PICK(table); }

}  // namespace epilogue::simd
#endif  // HWY_ONCE
