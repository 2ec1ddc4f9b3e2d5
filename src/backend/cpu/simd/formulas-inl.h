// SPDX-License-Identifier: Apache-2.0
// The pointwise functions on vectors: one formula() for each elementwise row of the table
// (pointwise_table.h). It takes the operands, then the parameters; a single float where the table
// says one_at_a_time. CasesOf has formulas for some values of the parameters: the first whose
// holds() is true is taken. Included once per target.
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
struct Of {};
template <PointwiseFn kFn>
struct CasesOf {};

HWY_INLINE Vf formula(Of<PointwiseFn::neg>, Vf x) { return hn::Neg(x); }
HWY_INLINE Vf formula(Of<PointwiseFn::relu>, Vf x) { return at_least(x, 0.0F); }
HWY_INLINE Vf formula(Of<PointwiseFn::sigmoid>, Vf x) { return sigmoid(x); }
HWY_INLINE Vf formula(Of<PointwiseFn::tanh>, Vf x) { return HWY_NAMESPACE::tanh(x); }
HWY_INLINE Vf formula(Of<PointwiseFn::exp>, Vf x) { return exp_full(x); }
HWY_INLINE Vf formula(Of<PointwiseFn::gelu_tanh>, Vf x) {
  return hn::Div(x, hn::Add(set(1.0F), exp2_fast(gelu_tanh_exponent(x))));
}
HWY_INLINE Vf formula(Of<PointwiseFn::gelu_erf>, Vf x) { return hn::Mul(x, normal_parts(x).phi); }
// x / (1 + e^-x)
HWY_INLINE Vf formula(Of<PointwiseFn::silu>, Vf x) {
  return hn::Div(x, hn::Add(set(1.0F), exp2_fast(hn::Mul(x, set(-kLog2E)))));
}
inline float formula(Of<PointwiseFn::log>, float x) { return std::log(x); }
// 1 / sqrt(x), two roundings.
HWY_INLINE Vf formula(Of<PointwiseFn::rsqrt>, Vf x) { return hn::Div(set(1.0F), hn::Sqrt(x)); }

HWY_INLINE Vf formula(Of<PointwiseFn::add>, Vf a, Vf b, Vf alpha) {
  return hn::MulAdd(alpha, b, a);
}
HWY_INLINE Vf formula(Of<PointwiseFn::sub>, Vf a, Vf b, Vf alpha) {
  return hn::NegMulAdd(alpha, b, a);
}
HWY_INLINE Vf formula(Of<PointwiseFn::mul>, Vf a, Vf b) { return hn::Mul(a, b); }
HWY_INLINE Vf formula(Of<PointwiseFn::div>, Vf a, Vf b) { return hn::Div(a, b); }

// A select, not a product: PyTorch's threshold_backward passes dy where the saved value is NaN.
HWY_INLINE Vf formula(Of<PointwiseFn::relu_backward>, Vf dy, Vf y) {
  return hn::IfThenElse(hn::Le(y, set(0.0F)), set(0.0F), dy);
}
HWY_INLINE Vf formula(Of<PointwiseFn::sigmoid_backward>, Vf dy, Vf y) {
  return hn::Mul(dy, hn::Mul(y, hn::Sub(set(1.0F), y)));
}
HWY_INLINE Vf formula(Of<PointwiseFn::tanh_backward>, Vf dy, Vf y) {
  return hn::Mul(dy, hn::NegMulAdd(y, y, set(1.0F)));
}
// s + x s (1 - s) 2u', u' = beta (1 + 3 kappa x^2)
HWY_INLINE Vf formula(Of<PointwiseFn::gelu_tanh_backward>, Vf dy, Vf x) {
  const SigmoidParts p = sigmoid_parts(gelu_tanh_exponent(x));
  constexpr float beta2 = 2.0F * kGeluBeta;
  const Vf du2 = hn::MulAdd(hn::Mul(x, x), set(beta2 * 3.0F * kGeluKappa), set(beta2));
  return hn::Mul(dy, hn::MulAdd(hn::Mul(x, p.slope), du2, p.s));
}
// Phi(x) + x phi(x), phi the density
HWY_INLINE Vf formula(Of<PointwiseFn::gelu_erf_backward>, Vf dy, Vf x) {
  const NormalParts p = normal_parts(x);
  return hn::Mul(dy, hn::MulAdd(x, hn::Mul(p.bell, set(0.398942280401432678F)), p.phi));
}
// s + x s (1 - s)
HWY_INLINE Vf formula(Of<PointwiseFn::silu_backward>, Vf dy, Vf x) {
  const SigmoidParts p = sigmoid_parts(hn::Mul(x, set(-kLog2E)));
  return hn::Mul(dy, hn::MulAdd(x, p.slope, p.s));
}

HWY_INLINE Vf formula(Of<PointwiseFn::leaky_relu>, Vf x, Vf slope) {
  return hn::IfThenElse(hn::Lt(set(0.0F), x), x, hn::Mul(x, slope));
}
HWY_INLINE Vf formula(Of<PointwiseFn::leaky_relu_backward>, Vf dy, Vf x, Vf slope) {
  return hn::IfThenElse(hn::Lt(set(0.0F), x), dy, hn::Mul(dy, slope));
}
HWY_INLINE Vf formula(Of<PointwiseFn::elu>, Vf x, Vf alpha, Vf scale, Vf input_scale) {
  const Vf below = hn::Mul(expm1_below(hn::Mul(x, input_scale)), hn::Mul(alpha, scale));
  return hn::IfThenElse(hn::Lt(x, set(0.0F)), below, hn::Mul(x, scale));
}
HWY_INLINE Vf formula(Of<PointwiseFn::elu_backward>, Vf dy, Vf x, Vf alpha, Vf scale,
                      Vf input_scale) {
  const Vf slope = hn::Mul(hn::Mul(alpha, scale), input_scale);
  const Vf below = hn::Mul(slope, exp_full(hn::Mul(x, input_scale)));
  return hn::Mul(dy, hn::IfThenElse(hn::Le(x, set(0.0F)), below, scale));
}
// log(1 + e^u) / beta, u = beta x
HWY_INLINE Vf formula(Of<PointwiseFn::softplus>, Vf x, Vf beta, Vf threshold) {
  const Vf u = hn::Mul(x, beta);
  const Vf soft = hn::Div(log_of_one_and_exp(u), beta);
  return hn::IfThenElse(hn::Lt(threshold, u), x, soft);
}
HWY_INLINE Vf formula(Of<PointwiseFn::softplus_backward>, Vf dy, Vf x, Vf beta, Vf threshold) {
  const Vf u = hn::Mul(x, beta);
  return hn::IfThenElse(hn::Lt(threshold, u), dy, hn::Mul(dy, sigmoid(u)));
}
// x n / (n + 2), n = e^x (e^x + 2): tanh(log(1 + e^x)) without a logarithm.
HWY_INLINE Vf formula(Of<PointwiseFn::mish>, Vf x) { return hn::Mul(x, mish_parts(x).gate); }
HWY_INLINE Vf formula(Of<PointwiseFn::mish_backward>, Vf dy, Vf x) {
  const MishParts p = mish_parts(x);
  return hn::Mul(dy, hn::MulAdd(x, p.slope, p.gate));
}
HWY_INLINE Vf formula(Of<PointwiseFn::hardswish>, Vf x) {
  const Vf gate = at_most(at_least(hn::Add(x, set(3.0F)), 0.0F), 6.0F);
  return hn::Mul(x, hn::Mul(gate, set(1.0F / 6.0F)));
}
HWY_INLINE Vf formula(Of<PointwiseFn::hardswish_backward>, Vf dy, Vf x) {
  const Vf between = hn::Mul(dy, hn::MulAdd(x, set(1.0F / 3.0F), set(0.5F)));
  const Vf from_left = hn::IfThenElse(hn::Lt(x, set(-3.0F)), set(0.0F), between);
  return hn::IfThenElse(hn::Lt(set(3.0F), x), dy, from_left);
}

HWY_INLINE Vf formula(Of<PointwiseFn::sqrt>, Vf x) { return hn::Sqrt(x); }
HWY_INLINE Vf formula(Of<PointwiseFn::abs>, Vf x) { return hn::Abs(x); }
HWY_INLINE Vf formula(Of<PointwiseFn::sgn>, Vf x) {
  return hn::Sub(truth(hn::Lt(set(0.0F), x)), truth(hn::Lt(x, set(0.0F))));
}
HWY_INLINE Vf formula(Of<PointwiseFn::sin>, Vf x) { return sine(x); }
HWY_INLINE Vf formula(Of<PointwiseFn::cos>, Vf x) { return cosine(x); }
HWY_INLINE Vf formula(Of<PointwiseFn::pow>, Vf x, Vf exponent) { return power(x, exponent); }
template <>
struct CasesOf<PointwiseFn::pow> {
  using Type = std::tuple<PowerOf<0>, PowerOf<1>, PowerOf<2>, PowerOf<3>, PowerOf<4>, PowerOf<-1>,
                          PowerOf<-2>, RootOf, PowerOfNoNumber>;
};
HWY_INLINE Vf formula(Of<PointwiseFn::clamp>, Vf x, Vf low, Vf high) {
  return smaller(larger(x, low), high);
}
HWY_INLINE Vf formula(Of<PointwiseFn::maximum>, Vf a, Vf b) { return larger(a, b); }
HWY_INLINE Vf formula(Of<PointwiseFn::minimum>, Vf a, Vf b) { return smaller(a, b); }

HWY_INLINE Vf formula(Of<PointwiseFn::eq>, Vf a, Vf b) { return truth(hn::Eq(a, b)); }
// Not Ne: that is false of NaN on some targets.
HWY_INLINE Vf formula(Of<PointwiseFn::ne>, Vf a, Vf b) { return truth(hn::Not(hn::Eq(a, b))); }
HWY_INLINE Vf formula(Of<PointwiseFn::lt>, Vf a, Vf b) { return truth(hn::Lt(a, b)); }
HWY_INLINE Vf formula(Of<PointwiseFn::le>, Vf a, Vf b) { return truth(hn::Le(a, b)); }
HWY_INLINE Vf formula(Of<PointwiseFn::gt>, Vf a, Vf b) { return truth(hn::Lt(b, a)); }
HWY_INLINE Vf formula(Of<PointwiseFn::ge>, Vf a, Vf b) { return truth(hn::Le(b, a)); }
HWY_INLINE Vf formula(Of<PointwiseFn::where>, Vf condition, Vf a, Vf b) {
  return hn::IfThenElse(hn::Eq(condition, set(0.0F)), b, a);
}

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, toggled per target
