// SPDX-License-Identifier: Apache-2.0
// The pointwise functions on vectors: one Formula for each elementwise row of the table
// (pointwise_fn.h). apply() takes the operands, then the parameters. Included once per target.
#if defined(EPILOGUE_SIMD_FORMULAS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EPILOGUE_SIMD_FORMULAS_INL_H_
#undef EPILOGUE_SIMD_FORMULAS_INL_H_
#else
#define EPILOGUE_SIMD_FORMULAS_INL_H_
#endif

#include <cmath>

#include "backend/cpu/simd/math-inl.h"
#include "pointwise/pointwise_fn.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {

template <PointwiseFn kFn>
struct Formula;

template <>
struct Formula<PointwiseFn::neg> {
  static HWY_INLINE Vf apply(Vf x) { return hn::Neg(x); }
};
template <>
struct Formula<PointwiseFn::relu> {
  static HWY_INLINE Vf apply(Vf x) { return at_least(x, 0.0F); }
};
template <>
struct Formula<PointwiseFn::sigmoid> {
  static HWY_INLINE Vf apply(Vf x) { return sigmoid(x); }
};
template <>
struct Formula<PointwiseFn::tanh> {
  static HWY_INLINE Vf apply(Vf x) { return HWY_NAMESPACE::tanh(x); }
};
template <>
struct Formula<PointwiseFn::exp> {
  static HWY_INLINE Vf apply(Vf x) { return exp_full(x); }
};
template <>
struct Formula<PointwiseFn::gelu_tanh> {
  static HWY_INLINE Vf apply(Vf x) {
    return hn::Div(x, hn::Add(set(1.0F), exp2_fast(gelu_tanh_exponent(x))));
  }
};
template <>
struct Formula<PointwiseFn::gelu_erf> {
  static HWY_INLINE Vf apply(Vf x) { return hn::Mul(x, normal_parts(x).phi); }
};
// x / (1 + e^-x)
template <>
struct Formula<PointwiseFn::silu> {
  static HWY_INLINE Vf apply(Vf x) {
    return hn::Div(x, hn::Add(set(1.0F), exp2_fast(hn::Mul(x, set(-kLog2E)))));
  }
};
template <>
struct Formula<PointwiseFn::log> {
  static float apply_one(float x) { return std::log(x); }
};
// 1 / sqrt(x), two roundings.
template <>
struct Formula<PointwiseFn::rsqrt> {
  static HWY_INLINE Vf apply(Vf x) { return hn::Div(set(1.0F), hn::Sqrt(x)); }
};

template <>
struct Formula<PointwiseFn::add> {
  static HWY_INLINE Vf apply(Vf a, Vf b, Vf alpha) { return hn::MulAdd(alpha, b, a); }
};
template <>
struct Formula<PointwiseFn::sub> {
  static HWY_INLINE Vf apply(Vf a, Vf b, Vf alpha) { return hn::NegMulAdd(alpha, b, a); }
};
template <>
struct Formula<PointwiseFn::mul> {
  static HWY_INLINE Vf apply(Vf a, Vf b) { return hn::Mul(a, b); }
};
template <>
struct Formula<PointwiseFn::div> {
  static HWY_INLINE Vf apply(Vf a, Vf b) { return hn::Div(a, b); }
};

// A select, not a product: PyTorch's threshold_backward passes dy where the saved value is NaN.
template <>
struct Formula<PointwiseFn::relu_backward> {
  static HWY_INLINE Vf apply(Vf dy, Vf y) {
    return hn::IfThenElse(hn::Le(y, set(0.0F)), set(0.0F), dy);
  }
};
template <>
struct Formula<PointwiseFn::sigmoid_backward> {
  static HWY_INLINE Vf apply(Vf dy, Vf y) { return hn::Mul(dy, hn::Mul(y, hn::Sub(set(1.0F), y))); }
};
template <>
struct Formula<PointwiseFn::tanh_backward> {
  static HWY_INLINE Vf apply(Vf dy, Vf y) { return hn::Mul(dy, hn::NegMulAdd(y, y, set(1.0F))); }
};
// s + x s (1 - s) 2u', u' = beta (1 + 3 kappa x^2)
template <>
struct Formula<PointwiseFn::gelu_tanh_backward> {
  static HWY_INLINE Vf apply(Vf dy, Vf x) {
    const SigmoidParts p = sigmoid_parts(gelu_tanh_exponent(x));
    constexpr float beta2 = 2.0F * kGeluBeta;
    const Vf du2 = hn::MulAdd(hn::Mul(x, x), set(beta2 * 3.0F * kGeluKappa), set(beta2));
    return hn::Mul(dy, hn::MulAdd(hn::Mul(x, p.slope), du2, p.s));
  }
};
// Phi(x) + x phi(x), phi the density
template <>
struct Formula<PointwiseFn::gelu_erf_backward> {
  static HWY_INLINE Vf apply(Vf dy, Vf x) {
    const NormalParts p = normal_parts(x);
    return hn::Mul(dy, hn::MulAdd(x, hn::Mul(p.bell, set(0.398942280401432678F)), p.phi));
  }
};
// s + x s (1 - s)
template <>
struct Formula<PointwiseFn::silu_backward> {
  static HWY_INLINE Vf apply(Vf dy, Vf x) {
    const SigmoidParts p = sigmoid_parts(hn::Mul(x, set(-kLog2E)));
    return hn::Mul(dy, hn::MulAdd(x, p.slope, p.s));
  }
};

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, toggled per target
