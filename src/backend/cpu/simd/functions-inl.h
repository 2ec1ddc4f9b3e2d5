// SPDX-License-Identifier: Apache-2.0
// Longer functions of f32 vectors that formulas are made of: logarithms, sines, powers, and bounds
// that let NaN pass. Included once per target.
#if defined(EPILOGUE_SIMD_FUNCTIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EPILOGUE_SIMD_FUNCTIONS_INL_H_
#undef EPILOGUE_SIMD_FUNCTIONS_INL_H_
#else
#define EPILOGUE_SIMD_FUNCTIONS_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>

#include <cmath>
#include <limits>

#include "backend/cpu/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {

HWY_INLINE Vf truth(hn::Mask<Df> mask) { return hn::IfThenElseZero(mask, set(1.0F)); }

// NaN of either comes through.
HWY_INLINE Vf larger(Vf a, Vf b) {
  return hn::IfThenElse(hn::Or(hn::Le(b, a), hn::IsNaN(a)), a, b);
}
HWY_INLINE Vf smaller(Vf a, Vf b) {
  return hn::IfThenElse(hn::Or(hn::Le(a, b), hn::IsNaN(a)), a, b);
}

// e^x - 1 for x <= 0; near 0, where that would cancel, its series.
HWY_INLINE Vf expm1_below(Vf x) {
  const Vf series = polynomial(x, 1.0F, 0.5F, 1.0F / 6, 1.0F / 24, 1.0F / 120, 1.0F / 720,
                               1.0F / 5040, 1.0F / 40320, 1.0F / 362880);
  return hn::IfThenElse(hn::Lt(set(-0.7F), x), hn::Mul(series, x), hn::Sub(exp_full(x), set(1.0F)));
}

// log(1 + e^u): u itself where e^u overflows.
HWY_INLINE Vf log_of_one_and_exp(Vf u) {
  const Vf e = exp_full(u);
  const Vf soft = hn::Log1p(Df(), e);
  const auto is_own = hn::Or(hn::IsNaN(u), hn::Lt(set(80.0F), u));
  return hn::IfThenElse(is_own, u, soft);
}

// t = tanh(log(1 + e^x)) = n / (n + 2), n = e^x (e^x + 2), and t' = s (1 - t^2) with the sigmoid s;
// 1 - t^2 = 4 (n + 1) / (n + 2)^2 does not cancel. From 20 on they are 1 and 0.
struct MishParts {
  Vf gate;
  Vf slope;
};
HWY_INLINE MishParts mish_parts(Vf x) {
  const Vf e = exp_full(at_most(x, 20.0F));
  const Vf n = hn::Mul(e, hn::Add(e, set(2.0F)));
  const Vf inverse = hn::Div(set(1.0F), hn::Add(n, set(2.0F)));
  const Vf rest = hn::Mul(hn::Mul(set(4.0F), hn::Mul(hn::Add(n, set(1.0F)), inverse)), inverse);
  const Vf s = hn::Div(e, hn::Add(set(1.0F), e));
  const Vf slope = hn::Mul(s, rest);
  return {hn::Mul(n, inverse), hn::IfThenElse(hn::Lt(set(20.0F), x), set(0.0F), slope)};
}

// Highway's sine is good to 3 ulp up to here.
inline constexpr float kLargestAngle = 30000.0F;

template <class F>
HWY_NOINLINE void replace_beyond(const float* x, float* y, F f) {
  for (size_t i = 0; i < kLanes; ++i)
    if (std::abs(x[i]) > kLargestAngle) y[i] = f(x[i]);
}

// y, but f(x) where x is too large for the vector form.
template <class F>
HWY_INLINE Vf with_large_angles(Vf x, Vf y, F f) {
  y = hn::IfThenElse(hn::IsNaN(x), x, y);
  if (HWY_LIKELY(hn::AllFalse(Df(), hn::Lt(set(kLargestAngle), hn::Abs(x))))) return y;
  alignas(64) float from[kLanes];
  alignas(64) float to[kLanes];
  hn::Store(x, Df(), from);
  hn::Store(y, Df(), to);
  replace_beyond(from, to, f);
  return hn::Load(Df(), to);
}

struct ExactSine {
  float operator()(float x) const { return std::sin(x); }
};
struct ExactCosine {
  float operator()(float x) const { return std::cos(x); }
};
// -0 stays -0.
HWY_INLINE Vf sine(Vf x) {
  const Vf y = hn::IfThenElse(hn::Eq(x, set(0.0F)), x, hn::Sin(Df(), x));
  return with_large_angles(x, y, ExactSine());
}
HWY_INLINE Vf cosine(Vf x) { return with_large_angles(x, hn::Cos(Df(), x), ExactCosine()); }

// e^(y log x) in f64, x > 0: the product has to be exact to 2^-32 for a result of 24 bits. What
// leaves the range of f32 becomes 0 or infinite.
HWY_INLINE Vf power_of_positive(Vf x, Vf y) {
  using Dd = hn::ScalableTag<double>;
  using Dh = hn::Rebind<float, Dd>;
  const Dd dd;
  const Dh dh;
  alignas(64) float base[kLanes];
  alignas(64) float exponent[kLanes];
  hn::Store(x, Df(), base);
  hn::Store(y, Df(), exponent);
  for (size_t i = 0; i < kLanes; i += hn::Lanes(dd)) {
    const auto log = hn::Log(dd, hn::PromoteTo(dd, hn::Load(dh, base + i)));
    const auto product = hn::Mul(log, hn::PromoteTo(dd, hn::Load(dh, exponent + i)));
    const auto bounded = hn::Min(hn::Max(product, hn::Set(dd, -200.0)), hn::Set(dd, 200.0));
    hn::Store(hn::DemoteTo(dh, hn::Exp(dd, bounded)), dh, base + i);
    hn::Store(hn::DemoteTo(dh, bounded), dh, exponent + i);
  }
  // The narrowing of some targets stops at the largest number.
  constexpr float kLargestLog = 88.72284F;
  return hn::IfThenElse(hn::Lt(set(kLargestLog), hn::Load(Df(), exponent)),
                        set(std::numeric_limits<float>::infinity()), hn::Load(Df(), base));
}

// x^y with std::pow's special cases, y finite and not 0.
HWY_INLINE Vf power(Vf x, Vf y) {
  const Vf zero = set(0.0F);
  const Vf infinity = set(std::numeric_limits<float>::infinity());
  const Vf magnitude = hn::Abs(x);
  const auto grows = hn::Lt(zero, y);
  Vf r = power_of_positive(magnitude, y);
  r = hn::IfThenElse(hn::Eq(magnitude, zero), hn::IfThenElse(grows, zero, infinity), r);
  r = hn::IfThenElse(hn::Eq(magnitude, infinity), hn::IfThenElse(grows, infinity, zero), r);
  const Vf half = hn::Mul(y, set(0.5F));
  const auto is_whole = hn::Eq(hn::Floor(y), y);
  const auto is_odd = hn::And(is_whole, hn::Ne(hn::Floor(half), half));
  r = hn::IfThenElse(is_odd, hn::CopySign(r, x), r);
  const auto is_finite_negative = hn::And(hn::Lt(x, zero), hn::Lt(magnitude, infinity));
  r = hn::IfThenElse(hn::AndNot(is_whole, is_finite_negative),
                     set(std::numeric_limits<float>::quiet_NaN()), r);
  return hn::IfThenElse(hn::IsNaN(x), x, r);
}

// Exponents with formulas of their own: holds() looks at the parameters.
template <int kExponent>
struct PowerOf {
  static bool holds(const float* parameters) { return parameters[0] == kExponent; }
  static HWY_INLINE Vf apply(Vf x, Vf) {
    if constexpr (kExponent < 0) return hn::Div(set(1.0F), PowerOf<-kExponent>::apply(x, x));
    if constexpr (kExponent == 0) return set(1.0F);
    if constexpr (kExponent == 1) return x;
    if constexpr (kExponent == 2) return hn::Mul(x, x);
    if constexpr (kExponent == 3) return hn::Mul(hn::Mul(x, x), x);
    const Vf square = hn::Mul(x, x);
    return hn::Mul(square, square);
  }
};
// x^0.5: where the square root has another sign or NaN, std::pow's value.
struct RootOf {
  static bool holds(const float* parameters) { return parameters[0] == 0.5F; }
  static HWY_INLINE Vf apply(Vf x, Vf) {
    const Vf infinity = set(std::numeric_limits<float>::infinity());
    const Vf root = hn::Sqrt(hn::Add(x, set(0.0F)));
    return hn::IfThenElse(hn::Eq(hn::Abs(x), infinity), infinity, root);
  }
};
// Infinite exponents, and NaN.
struct PowerOfNoNumber {
  static bool holds(const float* parameters) { return !std::isfinite(parameters[0]); }
  static HWY_NOINLINE Vf apply(Vf x, Vf y) {
    alignas(64) float base[kLanes];
    alignas(64) float exponent[kLanes];
    hn::Store(x, Df(), base);
    hn::Store(y, Df(), exponent);
    for (size_t i = 0; i < kLanes; ++i) base[i] = std::pow(base[i], exponent[i]);
    return hn::Load(Df(), base);
  }
};

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, toggled per target
