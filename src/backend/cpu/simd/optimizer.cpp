// SPDX-License-Identifier: Apache-2.0
// Optimizer kernels, compiled once per target. They wait for memory, so the formulas are written
// as they read, one vector at a time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/simd/optimizer.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which chooses the target:
#include "backend/cpu/simd/lanes-inl.h"
#include "backend/cpu/simd/optimizer.h"
#include "backend/cpu/simd/targets.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {
namespace {

// A vector's worth of elements at `i`, or the n that are left of one.
struct Whole {
  size_t i;
  template <FloatType kType>
  HWY_INLINE Vf load(const void* p) const {
    return load_as_f32<kType>(Df(), static_cast<const Storage<kType>*>(p) + i);
  }
  template <FloatType kType>
  HWY_INLINE void store(Vf v, void* p) const {
    store_from_f32<kType>(Df(), v, static_cast<Storage<kType>*>(p) + i);
  }
};
struct Rest {
  size_t i;
  size_t n;
  template <FloatType kType>
  HWY_INLINE Vf load(const void* p) const {
    return load_tail<kType>(Df(), static_cast<const Storage<kType>*>(p) + i, n);
  }
  template <FloatType kType>
  HWY_INLINE void store(Vf v, void* p) const {
    store_tail<kType>(Df(), v, static_cast<Storage<kType>*>(p) + i, n);
  }
};

// The copy is of the stored parameter: f32, so there is nothing to round before.
template <FloatType kCopy, class Place>
HWY_INLINE void store_copy(const Place& at, Vf param, void* copy) {
  if constexpr (kCopy != FloatType::f32) at.template store<kCopy>(param, copy);
}

HWY_INLINE Vf max_keeping_nan(Vf a, Vf b) {
  return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(b)), b, a);
}

template <FloatType kType, FloatType kCopy, class Place>
HWY_INLINE void adam_at(const Place& at, const AdamTile& tile, const AdamScalars& with) {
  Vf p = at.template load<kType>(tile.param);
  Vf g =
      hn::Mul(hn::Mul(at.template load<kType>(tile.grad), set(with.grad_factor)), set(with.clip));
  const Vf m = at.template load<kType>(tile.exp_avg);
  const Vf v = at.template load<kType>(tile.exp_avg_sq);
  if (with.l2 != 0) g = hn::MulAdd(p, set(with.l2), g);
  p = hn::Mul(p, set(with.decay));
  const Vf new_m = hn::MulAdd(hn::Sub(g, m), set(with.beta1_weight), m);
  const Vf new_v = hn::MulAdd(hn::Mul(g, g), set(with.beta2_weight), hn::Mul(v, set(with.beta2)));
  at.template store<kType>(new_m, tile.exp_avg);
  at.template store<kType>(new_v, tile.exp_avg_sq);
  Vf second = new_v;
  if (tile.max_exp_avg_sq != nullptr) {
    second = max_keeping_nan(at.template load<kType>(tile.max_exp_avg_sq), new_v);
    at.template store<kType>(second, tile.max_exp_avg_sq);
  }
  const Vf denominator = hn::MulAdd(hn::Sqrt(second), set(with.inverse_root), set(with.eps));
  p = hn::Sub(p, hn::Mul(set(with.step_size), hn::Div(new_m, denominator)));
  at.template store<kType>(p, tile.param);
  store_copy<kCopy>(at, p, tile.copy);
}

template <FloatType kType, FloatType kCopy>
void adam(const AdamTile& tile, const AdamScalars& with, size_t n) {
  const AdamTile t = tile;
  const AdamScalars s = with;
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) adam_at<kType, kCopy>(Whole{i}, t, s);
  if (i < n) adam_at<kType, kCopy>(Rest{i, n - i}, t, s);
}

template <FloatType kType, FloatType kCopy, class Place>
HWY_INLINE void sgd_at(const Place& at, const SgdTile& tile, const SgdScalars& with) {
  const Vf p = at.template load<kType>(tile.param);
  Vf g =
      hn::Mul(hn::Mul(at.template load<kType>(tile.grad), set(with.grad_factor)), set(with.clip));
  if (with.l2 != 0) g = hn::MulAdd(p, set(with.l2), g);
  if (tile.momentum_buffer != nullptr) {
    Vf b = g;
    if (!with.is_first)
      b = hn::MulAdd(g, set(with.dampened),
                     hn::Mul(at.template load<kType>(tile.momentum_buffer), set(with.momentum)));
    at.template store<kType>(b, tile.momentum_buffer);
    g = with.nesterov ? hn::MulAdd(b, set(with.momentum), g) : b;
  }
  const Vf next = hn::NegMulAdd(set(with.lr), g, p);
  at.template store<kType>(next, tile.param);
  store_copy<kCopy>(at, next, tile.copy);
}

template <FloatType kType, FloatType kCopy>
void sgd(const SgdTile& tile, const SgdScalars& with, size_t n) {
  const SgdTile t = tile;
  const SgdScalars s = with;
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) sgd_at<kType, kCopy>(Whole{i}, t, s);
  if (i < n) sgd_at<kType, kCopy>(Rest{i, n - i}, t, s);
}

}  // namespace

inline constexpr FloatType kF32 = FloatType::f32;
inline constexpr FloatType kBf16 = FloatType::bf16;
inline constexpr FloatType kF16 = FloatType::f16;

constexpr OptimizerKernels table = {
    .target = kTargetName,
    .adam_f32 = {adam<kF32, kF32>, adam<kF32, kBf16>, adam<kF32, kF16>},
    .sgd_f32 = {sgd<kF32, kF32>, sgd<kF32, kBf16>, sgd<kF32, kF16>},
    .adam_low = {nullptr, adam<kBf16, kF32>, adam<kF16, kF32>},
    .sgd_low = {nullptr, sgd<kBf16, kF32>, sgd<kF16, kF32>},
};

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epilogue::simd {

const OptimizerKernels& optimizer_kernels() { return EPILOGUE_PICK(table); }

}  // namespace epilogue::simd
#endif  // HWY_ONCE
