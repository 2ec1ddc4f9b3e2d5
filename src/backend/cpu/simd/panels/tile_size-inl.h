// SPDX-License-Identifier: Apache-2.0
// The tile of a product that an f32 micro-kernel keeps in registers: kMr rows of kNv vectors.
// Included once per target.
#if defined(EPILOGUE_SIMD_PANELS_TILE_SIZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EPILOGUE_SIMD_PANELS_TILE_SIZE_INL_H_
#undef EPILOGUE_SIMD_PANELS_TILE_SIZE_INL_H_
#else
#define EPILOGUE_SIMD_PANELS_TILE_SIZE_INL_H_
#endif

#include "backend/cpu/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {

// 6 x 4 of AVX-512's 32 registers and 6 x 2 of AVX2's 16 are more than the 8 chains that two FMA
// units of latency 4 need, and read least per FMA; both measured at 97-99 % of the register-only
// rate from L2.
inline constexpr int64_t kMr = HWY_TARGET == HWY_SCALAR ? 4 : 6;
inline constexpr int64_t kNv = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_SCALAR ? 4 : 2;
inline constexpr int64_t kWidth = kNv * static_cast<int64_t>(kLanes);  // columns of a panel

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, toggled per target
