// SPDX-License-Identifier: Apache-2.0
// Loads and stores for every kernel: any float type, whole vectors and tails. Included once per
// target (hence the toggled guard), always after hwy/foreach_target.h.
#if defined(EPILOGUE_SIMD_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EPILOGUE_SIMD_LANES_INL_H_
#undef EPILOGUE_SIMD_LANES_INL_H_
#else
#define EPILOGUE_SIMD_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/simd/convert.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Df = hn::ScalableTag<float>;
using Vf = hn::Vec<Df>;
inline constexpr size_t kLanes = hn::MaxLanes(Df());

// The namespace, N_AVX3 and so on, is Highway's name of the target.
inline constexpr const char* kTargetName = &HWY_STR(HWY_NAMESPACE)[2];

// From AVX2 on, masked float loads and stores exist and do not touch the lanes left out.
inline constexpr bool kNativeMasks = HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3;
inline constexpr bool kNativeF16 = HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3;

// The C++ type that stores a FloatType.
template <FloatType kType>
struct StorageOf {
  using T = uint16_t;
};
template <>
struct StorageOf<FloatType::f32> {
  using T = float;
};
template <FloatType kType>
using Storage = typename StorageOf<kType>::T;

// bf16 is the upper half of an f32.
template <class D, class V16>
HWY_INLINE hn::Vec<D> widen_bf16(D d, V16 bits) {
  const hn::Rebind<uint32_t, D> du;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}

// Adds half of the last kept place, minus one unless that place is odd: ties go to even. NaN is
// kept apart, for its mantissa may overflow or lose all its bits.
template <class D>
HWY_INLINE auto narrow_bf16(D, hn::Vec<D> v) {
  const hn::Rebind<uint32_t, D> du;
  const hn::Rebind<int32_t, D> di;
  const hn::Rebind<uint16_t, D> d16;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF)));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x00400000));
  const auto kept = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
  return hn::DemoteTo(d16, hn::BitCast(di, hn::ShiftRight<16>(kept)));
}

// Moves exponent and mantissa into place and lets one exact multiplication by 2^112 correct the
// exponent's bias, which also makes the denormals right. Highway's own conversion has no infinity.
template <class D, class V16>
HWY_INLINE hn::Vec<D> widen_f16(D d, V16 bits) {
  if constexpr (kNativeF16) {
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::PromoteTo(d, hn::BitCast(d16, bits));
  } else {
    const hn::Rebind<uint32_t, D> du;
    const auto h = hn::PromoteTo(du, bits);
    const auto sign = hn::ShiftLeft<16>(hn::And(h, hn::Set(du, 0x8000)));
    const auto body = hn::BitCast(d, hn::ShiftLeft<13>(hn::And(h, hn::Set(du, 0x7FFF))));
    const auto value = hn::Mul(body, hn::Set(d, 0x1p112F));
    const auto special = hn::Ge(value, hn::Set(d, 65536.0F));
    const auto infinity = hn::BitCast(d, hn::Set(du, 0x7F800000));
    return hn::Or(hn::IfThenElse(special, hn::Or(value, infinity), value), hn::BitCast(d, sign));
  }
}

// Three ranges: denormal results are rounded by adding 0.5 (whose last place is theirs), normal
// ones in integers as in narrow_bf16, and what is beyond becomes infinity or stays NaN.
template <class D>
HWY_INLINE auto narrow_f16(D d, hn::Vec<D> v) {
  const hn::Rebind<uint16_t, D> d16;
  if constexpr (kNativeF16) {
    return hn::BitCast(d16, hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), v));
  } else {
    const hn::Rebind<uint32_t, D> du;
    const hn::Rebind<int32_t, D> di;
    const auto magnitude = hn::Abs(v);
    const auto bits = hn::BitCast(du, magnitude);
    const auto sign = hn::ShiftRight<16>(hn::Xor(hn::BitCast(du, v), bits));
    const auto half = hn::Set(d, 0.5F);
    const auto denormal = hn::Sub(hn::BitCast(du, hn::Add(magnitude, half)), hn::BitCast(du, half));
    const auto odd = hn::And(hn::ShiftRight<13>(bits), hn::Set(du, 1));
    const auto bias = hn::Set(du, 0xC8000FFFU);  // ((15 - 127) << 23) + 0xFFF
    const auto normal = hn::ShiftRight<13>(hn::Add(bits, hn::Add(bias, odd)));
    const auto mantissa = hn::And(hn::ShiftRight<13>(bits), hn::Set(du, 0x03FF));
    const auto nan = hn::Or(mantissa, hn::Set(du, 0x7E00));
    auto out = hn::IfThenElse(hn::RebindMask(du, hn::Lt(magnitude, hn::Set(d, 0x1p-14F))), denormal,
                              normal);
    out = hn::IfThenElse(hn::RebindMask(du, hn::Ge(magnitude, hn::Set(d, 65536.0F))),
                         hn::Set(du, 0x7C00), out);
    out = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), nan, out);
    return hn::DemoteTo(d16, hn::BitCast(di, hn::Or(out, sign)));
  }
}

// One whole vector of f32 from `p`, whatever is stored there.
template <FloatType kType, class D>
HWY_INLINE hn::Vec<D> load_as_f32(D d, const Storage<kType>* p) {
  if constexpr (kType == FloatType::f32) {
    return hn::LoadU(d, p);
  } else {
    const auto bits = hn::LoadU(hn::Rebind<uint16_t, D>(), p);
    if constexpr (kType == FloatType::bf16) return widen_bf16(d, bits);
    if constexpr (kType == FloatType::f16) return widen_f16(d, bits);
  }
}

template <FloatType kType, class D>
HWY_INLINE void store_from_f32(D d, hn::Vec<D> v, Storage<kType>* p) {
  const hn::Rebind<uint16_t, D> d16;
  if constexpr (kType == FloatType::f32) hn::StoreU(v, d, p);
  if constexpr (kType == FloatType::bf16) hn::StoreU(narrow_bf16(d, v), d16, p);
  if constexpr (kType == FloatType::f16) hn::StoreU(narrow_f16(d, v), d16, p);
}

// The first n < Lanes(d) elements; the other lanes are zero. Touches nothing beyond them.
template <FloatType kType, class D>
HWY_INLINE hn::Vec<D> load_tail(D d, const Storage<kType>* p, size_t n) {
  if constexpr (kType == FloatType::f32 && kNativeMasks) {
    return hn::MaskedLoad(hn::FirstN(d, n), d, p);
  } else {
    HWY_ALIGN Storage<kType> lanes[hn::MaxLanes(D())] = {};
    for (size_t i = 0; i < n; ++i) lanes[i] = p[i];
    return load_as_f32<kType>(d, lanes);
  }
}

template <FloatType kType, class D>
HWY_INLINE void store_tail(D d, hn::Vec<D> v, Storage<kType>* p, size_t n) {
  if constexpr (kType == FloatType::f32 && kNativeMasks) {
    hn::BlendedStore(v, hn::FirstN(d, n), d, p);
  } else {
    HWY_ALIGN Storage<kType> lanes[hn::MaxLanes(D())];
    store_from_f32<kType>(d, v, lanes);
    for (size_t i = 0; i < n; ++i) p[i] = lanes[i];
  }
}

HWY_INLINE Vf load(const float* p) { return hn::LoadU(Df(), p); }
HWY_INLINE void store(Vf v, float* p) { hn::StoreU(v, Df(), p); }
HWY_INLINE Vf load_tail(const float* p, size_t n) { return load_tail<FloatType::f32>(Df(), p, n); }
HWY_INLINE void store_tail(Vf v, float* p, size_t n) { store_tail<FloatType::f32>(Df(), v, p, n); }
HWY_INLINE Vf set(float value) { return hn::Set(Df(), value); }

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, toggled per target
