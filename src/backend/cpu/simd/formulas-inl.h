// SPDX-License-Identifier: Apache-2.0
// The pointwise functions on vectors: one Formula for each elementwise row of the table
// (pointwise_table.h). apply() takes the operands, then the parameters. `Cases` are formulas for
// some values of the parameters: the first whose holds() is true is taken. Included once per
// target.
#if defined(EPILOGUE_SIMD_FORMULAS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EPILOGUE_SIMD_FORMULAS_INL_H_
#undef EPILOGUE_SIMD_FORMULAS_INL_H_
#else
#define EPILOGUE_SIMD_FORMULAS_INL_H_
#endif

#include <cmath>

#include <tuple>

#include "backend/cpu/simd/functions-inl.h"
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

template <>
struct Formula<PointwiseFn::leaky_relu> {
  static HWY_INLINE Vf apply(Vf x, Vf slope) {
    return hn::IfThenElse(hn::Lt(set(0.0F), x), x, hn::Mul(x, slope));
  }
};
template <>
struct Formula<PointwiseFn::leaky_relu_backward> {
  static HWY_INLINE Vf apply(Vf dy, Vf x, Vf slope) {
    return hn::IfThenElse(hn::Lt(set(0.0F), x), dy, hn::Mul(dy, slope));
  }
};
template <>
struct Formula<PointwiseFn::elu> {
  static HWY_INLINE Vf apply(Vf x, Vf alpha, Vf scale, Vf input_scale) {
    const Vf below = hn::Mul(expm1_below(hn::Mul(x, input_scale)), hn::Mul(alpha, scale));
    return hn::IfThenElse(hn::Lt(x, set(0.0F)), below, hn::Mul(x, scale));
  }
};
template <>
struct Formula<PointwiseFn::elu_backward> {
  static HWY_INLINE Vf apply(Vf dy, Vf x, Vf alpha, Vf scale, Vf input_scale) {
    const Vf slope = hn::Mul(hn::Mul(alpha, scale), input_scale);
    const Vf below = hn::Mul(slope, exp_full(hn::Mul(x, input_scale)));
    return hn::Mul(dy, hn::IfThenElse(hn::Le(x, set(0.0F)), below, scale));
  }
};
// log(1 + e^u) / beta, u = beta x
template <>
struct Formula<PointwiseFn::softplus> {
  static HWY_INLINE Vf apply(Vf x, Vf beta, Vf threshold) {
    const Vf u = hn::Mul(x, beta);
    const Vf soft = hn::Div(log_of_one_and_exp(u), beta);
    return hn::IfThenElse(hn::Lt(threshold, u), x, soft);
  }
};
template <>
struct Formula<PointwiseFn::softplus_backward> {
  static HWY_INLINE Vf apply(Vf dy, Vf x, Vf beta, Vf threshold) {
    const Vf u = hn::Mul(x, beta);
    return hn::IfThenElse(hn::Lt(threshold, u), dy, hn::Mul(dy, sigmoid(u)));
  }
};
// x n / (n + 2), n = e^x (e^x + 2): tanh(log(1 + e^x)) without a logarithm.
template <>
struct Formula<PointwiseFn::mish> {
  static HWY_INLINE Vf apply(Vf x) { return hn::Mul(x, mish_parts(x).gate); }
};
template <>
struct Formula<PointwiseFn::mish_backward> {
  static HWY_INLINE Vf apply(Vf dy, Vf x) {
    const MishParts p = mish_parts(x);
    return hn::Mul(dy, hn::MulAdd(x, p.slope, p.gate));
  }
};
template <>
struct Formula<PointwiseFn::hardswish> {
  static HWY_INLINE Vf apply(Vf x) {
    const Vf gate = at_most(at_least(hn::Add(x, set(3.0F)), 0.0F), 6.0F);
    return hn::Mul(x, hn::Mul(gate, set(1.0F / 6.0F)));
  }
};
template <>
struct Formula<PointwiseFn::hardswish_backward> {
  static HWY_INLINE Vf apply(Vf dy, Vf x) {
    const Vf between = hn::Mul(dy, hn::MulAdd(x, set(1.0F / 3.0F), set(0.5F)));
    const Vf from_left = hn::IfThenElse(hn::Lt(x, set(-3.0F)), set(0.0F), between);
    return hn::IfThenElse(hn::Lt(set(3.0F), x), dy, from_left);
  }
};

template <>
struct Formula<PointwiseFn::sqrt> {
  static HWY_INLINE Vf apply(Vf x) { return hn::Sqrt(x); }
};
template <>
struct Formula<PointwiseFn::abs> {
  static HWY_INLINE Vf apply(Vf x) { return hn::Abs(x); }
};
template <>
struct Formula<PointwiseFn::sgn> {
  static HWY_INLINE Vf apply(Vf x) {
    return hn::Sub(truth(hn::Lt(set(0.0F), x)), truth(hn::Lt(x, set(0.0F))));
  }
};
template <>
struct Formula<PointwiseFn::sin> {
  static HWY_INLINE Vf apply(Vf x) { return sine(x); }
};
template <>
struct Formula<PointwiseFn::cos> {
  static HWY_INLINE Vf apply(Vf x) { return cosine(x); }
};
template <>
struct Formula<PointwiseFn::pow> {
  static HWY_INLINE Vf apply(Vf x, Vf exponent) { return power(x, exponent); }
  using Cases = std::tuple<PowerOf<0>, PowerOf<1>, PowerOf<2>, PowerOf<3>, PowerOf<4>, PowerOf<-1>,
                           PowerOf<-2>, RootOf, PowerOfNoNumber>;
};
template <>
struct Formula<PointwiseFn::clamp> {
  static HWY_INLINE Vf apply(Vf x, Vf low, Vf high) { return smaller(larger(x, low), high); }
};
template <>
struct Formula<PointwiseFn::maximum> {
  static HWY_INLINE Vf apply(Vf a, Vf b) { return larger(a, b); }
};
template <>
struct Formula<PointwiseFn::minimum> {
  static HWY_INLINE Vf apply(Vf a, Vf b) { return smaller(a, b); }
};

template <>
struct Formula<PointwiseFn::eq> {
  static HWY_INLINE Vf apply(Vf a, Vf b) { return truth(hn::Eq(a, b)); }
};
// Not Ne: that is false of NaN on some targets.
template <>
struct Formula<PointwiseFn::ne> {
  static HWY_INLINE Vf apply(Vf a, Vf b) { return truth(hn::Not(hn::Eq(a, b))); }
};
template <>
struct Formula<PointwiseFn::lt> {
  static HWY_INLINE Vf apply(Vf a, Vf b) { return truth(hn::Lt(a, b)); }
};
template <>
struct Formula<PointwiseFn::le> {
  static HWY_INLINE Vf apply(Vf a, Vf b) { return truth(hn::Le(a, b)); }
};
template <>
struct Formula<PointwiseFn::gt> {
  static HWY_INLINE Vf apply(Vf a, Vf b) { return truth(hn::Lt(b, a)); }
};
template <>
struct Formula<PointwiseFn::ge> {
  static HWY_INLINE Vf apply(Vf a, Vf b) { return truth(hn::Le(b, a)); }
};
template <>
struct Formula<PointwiseFn::where> {
  static HWY_INLINE Vf apply(Vf condition, Vf a, Vf b) {
    return hn::IfThenElse(hn::Eq(condition, set(0.0F)), b, a);
  }
};

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, toggled per target
