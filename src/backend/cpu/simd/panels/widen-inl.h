// SPDX-License-Identifier: Apache-2.0
// Elements of any type as f32. Included once per target.
#if defined(EPILOGUE_SIMD_PANELS_WIDEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EPILOGUE_SIMD_PANELS_WIDEN_INL_H_
#undef EPILOGUE_SIMD_PANELS_WIDEN_INL_H_
#else
#define EPILOGUE_SIMD_PANELS_WIDEN_INL_H_
#endif

#include "backend/cpu/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {

// n contiguous elements as f32.
template <FloatType kType>
HWY_INLINE void widen_row(const Storage<kType>* HWY_RESTRICT in, float* HWY_RESTRICT out,
                          int64_t n) {
  const Df d;
  int64_t i = 0;
  for (; i + static_cast<int64_t>(kLanes) <= n; i += kLanes)
    store(load_as_f32<kType>(d, in + i), out + i);
  if (i == n) return;
  const auto rest = static_cast<size_t>(n - i);
  store_tail(load_tail<kType>(d, in + i, rest), out + i, rest);
}

template <FloatType kType>
HWY_INLINE float widen_one(const Storage<kType>* p) {
  const hn::CappedTag<float, 1> d;
  return hn::GetLane(load_as_f32<kType>(d, p));
}

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, toggled per target
