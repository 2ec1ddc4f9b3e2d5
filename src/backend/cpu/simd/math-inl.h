// SPDX-License-Identifier: Apache-2.0
// What the formulas of pointwise functions are made of, on vectors of f32. Included once per
// target.
//
// NaN must come through, but Min and Max drop or keep it depending on the target: all clamping is
// by comparison and selection here, which lets NaN pass.
#if defined(EPILOGUE_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EPILOGUE_SIMD_MATH_INL_H_
#undef EPILOGUE_SIMD_MATH_INL_H_
#else
#define EPILOGUE_SIMD_MATH_INL_H_
#endif

#include "backend/cpu/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {

inline constexpr float kLog2E = 1.44269504088896341F;
// gelu_tanh: u = kGeluBeta * (x + kGeluKappa * x^3).
inline constexpr float kGeluBeta = 0.79788456080286536F;  // sqrt(2 / pi)
inline constexpr float kGeluKappa = 0.044715F;

HWY_INLINE Vf at_least(Vf v, float bound) {
  return hn::IfThenElse(hn::Lt(v, set(bound)), set(bound), v);
}
HWY_INLINE Vf at_most(Vf v, float bound) {
  return hn::IfThenElse(hn::Lt(set(bound), v), set(bound), v);
}

// c0 + c1 x + c2 x^2 + ... by Horner's rule.
HWY_INLINE Vf polynomial(Vf, float c0) { return set(c0); }
template <class... Cs>
HWY_INLINE Vf polynomial(Vf x, float c0, Cs... rest) {
  return hn::MulAdd(polynomial(x, rest...), x, set(c0));
}

// 2^y to 1.6e-7 relative, 7e-8 on average (a minimax fit): 2^n * 2^f, n the nearest integer.
// Adding 1.5 * 2^23 rounds y to an integer in the low bits of the mantissa; 127 more and a shift
// make those the float 2^n. Results below 2^-127 become 0 and above 2^127.5 infinite: right for the
// denominators it is meant for.
HWY_INLINE Vf exp2_fast(Vf y) {
  const Df d;
  const hn::RebindToUnsigned<Df> du;
  const Vf magic = set(12582912.0F + 127.0F);
  y = at_most(at_least(y, -127.0F), 128.0F);
  const Vf shifted = hn::Add(y, magic);
  const Vf f = hn::Sub(y, hn::Sub(shifted, magic));
  const Vf scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, shifted)));
  const Vf p = polynomial(f, 1.0F, 0.693146978F, 0.240222421F, 0.0555073374F, 0.00967151266F,
                          0.00132647269F);
  return hn::Mul(p, scale);
}

// e^x over the whole range, to 2 ulp, denormal results included: e^r * 2^n with r = x - n ln 2 in
// two parts (Cody and Waite) and 2^n as two factors, for 2^n alone can leave the range.
HWY_INLINE Vf exp_full(Vf x) {
  const Df d;
  const hn::RebindToSigned<Df> di;
  x = at_most(at_least(x, -104.5F), 89.0F);
  const Vf magic = set(12582912.0F);
  const Vf shifted = hn::Add(hn::Mul(x, set(kLog2E)), magic);
  const Vf n = hn::Sub(shifted, magic);
  const Vf r = hn::NegMulAdd(n, set(-2.12194440e-4F), hn::NegMulAdd(n, set(0.693359375F), x));
  const Vf p = polynomial(r, 1.0F, 1.0F, 0.50000001201F, 0.16666665459F, 0.041665795894F,
                          8.3334519073e-3F, 1.3981999507e-3F, 1.9875691500e-4F);
  const auto exponent = hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, magic));
  const auto half = hn::ShiftRight<1>(exponent);
  const auto bias = hn::Set(di, 127);
  const auto low = hn::ShiftLeft<23>(hn::Add(half, bias));
  const auto high = hn::ShiftLeft<23>(hn::Add(hn::Sub(exponent, half), bias));
  return hn::Mul(hn::Mul(p, hn::BitCast(d, low)), hn::BitCast(d, high));
}

// 1 / (1 + e^-x)
HWY_INLINE Vf sigmoid(Vf x) {
  return hn::Div(set(1.0F), hn::Add(set(1.0F), exp2_fast(hn::Mul(x, set(-kLog2E)))));
}

// 1 - 2 / (1 + e^2|x|) with x's sign; an odd polynomial near 0, where that would cancel.
HWY_INLINE Vf tanh(Vf x) {
  const Vf magnitude = hn::Abs(x);
  const Vf e = exp2_fast(hn::Mul(magnitude, set(2.0F * kLog2E)));
  const Vf far = hn::Sub(set(1.0F), hn::Div(set(2.0F), hn::Add(e, set(1.0F))));
  const Vf x2 = hn::Mul(x, x);
  const Vf odd = polynomial(x2, -3.33332819422e-1F, 1.33314422036e-1F, -5.37397155531e-2F,
                            2.06390887954e-2F, -5.70498872745e-3F);
  const Vf near = hn::MulAdd(hn::Mul(odd, x2), x, x);
  return hn::IfThenElse(hn::Lt(magnitude, set(0.625F)), near, hn::CopySign(far, x));
}

// -2 u log2(e), u as above: 0.5 x (1 + tanh u) = x / (1 + e^-2u) = x / (1 + 2^this).
HWY_INLINE Vf gelu_tanh_exponent(Vf x) {
  constexpr float k1 = -2.0F * kGeluBeta * kLog2E;
  return hn::Mul(x, hn::MulAdd(hn::Mul(x, x), set(k1 * kGeluKappa), set(k1)));
}

// s = 1 / (1 + 2^y) and s (1 - s). From 2^-|y|, which does not overflow: with e of it, s (1 - s) is
// e / (1 + e)^2 on either side, free of cancellation.
struct SigmoidParts {
  Vf s;
  Vf slope;
};
HWY_INLINE SigmoidParts sigmoid_parts(Vf y) {
  const Vf e = exp2_fast(hn::Neg(hn::Abs(y)));
  const Vf small = hn::Div(set(1.0F), hn::Add(set(1.0F), e));
  const Vf rest = hn::Mul(e, small);
  return {hn::IfThenElse(hn::Lt(set(0.0F), y), rest, small), hn::Mul(rest, small)};
}

// Phi(x), the normal distribution, and e^(-x^2 / 2). The tail is Phi(-a) = e^(-a^2 / 2) Q(t) with
// t = 1 / (1 + 0.3 a), a = |x|; Q is a minimax fit of degree 8 for a <= 13.5, relative
// error 1.5e-7, a third of that where the density is high.
struct NormalParts {
  Vf phi;
  Vf bell;
};
HWY_INLINE NormalParts normal_parts(Vf x) {
  const Vf a = hn::Abs(x);
  const Vf t = hn::Div(set(1.0F), hn::MulAdd(a, set(0.3F), set(1.0F)));
  const Vf q = polynomial(t, 0.1196236644F, 0.1208448424F, 0.09931549729F, 0.1306426129F,
                          -0.05782556249F, 0.2110789803F, -0.1600727248F, 0.03639267036F);
  const Vf bell = exp2_fast(hn::Mul(hn::Mul(a, a), set(-0.5F * kLog2E)));
  const Vf tail = hn::Mul(hn::Mul(q, t), bell);
  return {hn::IfThenElse(hn::Lt(x, set(0.0F)), tail, hn::Sub(set(1.0F), tail)), bell};
}

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, toggled per target
