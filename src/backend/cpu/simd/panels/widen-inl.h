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

template <FloatType kType>
const float* widened_row(const void* row, int64_t col_stride, int64_t n, float* buffer) {
  const auto* in = static_cast<const Storage<kType>*>(row);
  if constexpr (kType == FloatType::f32) {
    if (col_stride == 1) return in;
  }
  if (col_stride == 1) {
    widen_row<kType>(in, buffer, n);
  } else {
    for (int64_t j = 0; j < n; ++j) buffer[j] = widen_one<kType>(in + j * col_stride);
  }
  return buffer;
}

// n elements of a row as f32: where they lie if they are that, else in `buffer`.
inline const float* widened_row(const void* row, FloatType type, int64_t col_stride, int64_t n,
                                float* buffer) {
  switch (type) {
    case FloatType::f32: return widened_row<FloatType::f32>(row, col_stride, n, buffer);
    case FloatType::bf16: return widened_row<FloatType::bf16>(row, col_stride, n, buffer);
    case FloatType::f16: return widened_row<FloatType::f16>(row, col_stride, n, buffer);
  }
  return nullptr;
}

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, toggled per target
