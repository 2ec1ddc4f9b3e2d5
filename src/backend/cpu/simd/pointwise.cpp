// SPDX-License-Identifier: Apache-2.0
// Pointwise kernels: one loop per number of operands, one functor per op, compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/simd/pointwise.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which chooses the target:
#include <cmath>

#include "backend/cpu/simd/math-inl.h"
#include "backend/cpu/simd/pointwise.h"
#include "backend/cpu/simd/targets.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {
namespace {

// Functors, not lambdas: a lambda does not take part in Highway's target region.
struct Neg {
  static HWY_INLINE Vf apply(Vf x) { return hn::Neg(x); }
};
struct Relu {
  static HWY_INLINE Vf apply(Vf x) { return at_least(x, 0.0F); }
};
struct Sigmoid {
  static HWY_INLINE Vf apply(Vf x) { return sigmoid(x); }
};
struct Tanh {
  static HWY_INLINE Vf apply(Vf x) { return HWY_NAMESPACE::tanh(x); }
};
struct Exp {
  static HWY_INLINE Vf apply(Vf x) { return exp_full(x); }
};
struct GeluTanh {
  static HWY_INLINE Vf apply(Vf x) { return gelu_tanh(x); }
};
struct GeluErf {
  static HWY_INLINE Vf apply(Vf x) { return gelu_erf(x); }
};
struct Silu {
  static HWY_INLINE Vf apply(Vf x) { return silu(x); }
};
struct Rsqrt {
  static HWY_INLINE Vf apply(Vf x) { return hn::Div(set(1.0F), hn::Sqrt(x)); }
};

struct Add {
  static HWY_INLINE Vf apply(Vf a, Vf b, Vf alpha) { return hn::MulAdd(alpha, b, a); }
};
struct Sub {
  static HWY_INLINE Vf apply(Vf a, Vf b, Vf alpha) { return hn::NegMulAdd(alpha, b, a); }
};
struct Mul {
  static HWY_INLINE Vf apply(Vf a, Vf b, Vf) { return hn::Mul(a, b); }
};
struct Div {
  static HWY_INLINE Vf apply(Vf a, Vf b, Vf) { return hn::Div(a, b); }
};

// A select, not a product: PyTorch's threshold_backward passes dy where the saved value is NaN.
struct ReluBackward {
  static HWY_INLINE Vf apply(Vf dy, Vf y, Vf) {
    return hn::IfThenElse(hn::Le(y, set(0.0F)), set(0.0F), dy);
  }
};
struct SigmoidBackward {
  static HWY_INLINE Vf apply(Vf dy, Vf y, Vf) {
    return hn::Mul(dy, hn::Mul(y, hn::Sub(set(1.0F), y)));
  }
};
struct TanhBackward {
  static HWY_INLINE Vf apply(Vf dy, Vf y, Vf) {
    return hn::Mul(dy, hn::NegMulAdd(y, y, set(1.0F)));
  }
};
struct GeluTanhBackward {
  static HWY_INLINE Vf apply(Vf dy, Vf x, Vf) { return hn::Mul(dy, gelu_tanh_derivative(x)); }
};
struct GeluErfBackward {
  static HWY_INLINE Vf apply(Vf dy, Vf x, Vf) { return hn::Mul(dy, gelu_erf_derivative(x)); }
};
struct SiluBackward {
  static HWY_INLINE Vf apply(Vf dy, Vf x, Vf) { return hn::Mul(dy, silu_derivative(x)); }
};

template <class Op>
void map(const float* x, float* out, size_t n) {
  size_t i = 0;
  // Two at a time: the chains are longer than the out-of-order window can overlap by itself.
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const Vf a = Op::apply(load(x + i));
    const Vf b = Op::apply(load(x + i + kLanes));
    store(a, out + i);
    store(b, out + i + kLanes);
  }
  for (; i + kLanes <= n; i += kLanes) store(Op::apply(load(x + i)), out + i);
  if (i < n) store_tail(Op::apply(load_tail(x + i, n - i)), out + i, n - i);
}

// An operand that is an array, or one value for all elements.
struct Array {
  const float* data;
  HWY_INLINE Vf at(size_t i) const { return load(data + i); }
  HWY_INLINE Vf tail(size_t i, size_t n) const { return load_tail(data + i, n); }
};
struct Scalar {
  float value;
  HWY_INLINE Vf at(size_t) const { return set(value); }
  HWY_INLINE Vf tail(size_t, size_t) const { return set(value); }
};

template <class Op, class A, class B>
HWY_INLINE void zip(A a, B b, float* out, size_t n, float alpha) {
  const Vf scale = set(alpha);
  size_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const Vf first = Op::apply(a.at(i), b.at(i), scale);
    const Vf second = Op::apply(a.at(i + kLanes), b.at(i + kLanes), scale);
    store(first, out + i);
    store(second, out + i + kLanes);
  }
  for (; i + kLanes <= n; i += kLanes) store(Op::apply(a.at(i), b.at(i), scale), out + i);
  if (i < n) store_tail(Op::apply(a.tail(i, n - i), b.tail(i, n - i), scale), out + i, n - i);
}

template <class Op>
void binary(const float* a, const float* b, float* out, size_t n, float alpha) {
  zip<Op>(Array{a}, Array{b}, out, n, alpha);
}
template <class Op>
void scalar_right(const float* a, float b, float* out, size_t n, float alpha) {
  zip<Op>(Array{a}, Scalar{b}, out, n, alpha);
}
template <class Op>
void scalar_left(float a, const float* b, float* out, size_t n, float alpha) {
  zip<Op>(Scalar{a}, Array{b}, out, n, alpha);
}
template <class Op>
void backward(const float* dy, const float* saved, float* out, size_t n) {
  zip<Op>(Array{dy}, Array{saved}, out, n, 1.0F);
}

void log_each(const float* x, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = std::log(x[i]);
}

// The mask's bytes have a quarter of a lane's width; the compiler vectorises the plain loop.
void mask_scale(const float* x, const uint8_t* keep, float scale, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = keep[i] != 0 ? x[i] * scale : 0.0F;
}

void scale(const float* x, float s, float* out, size_t n) {
  zip<Mul>(Array{x}, Scalar{s}, out, n, 1.0F);
}
void axpy(float s, const float* x, float* out, size_t n) {
  zip<Add>(Array{out}, Array{x}, out, n, s);
}

void fill(float value, float* out, size_t n) {
  const Vf v = set(value);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(v, out + i);
  if (i < n) store_tail(v, out + i, n - i);
}

}  // namespace

constexpr PointwiseKernels table = {
    .target = kTargetName,
    .unary = {map<Neg>, map<Relu>, map<Sigmoid>, map<Tanh>, map<Exp>, map<GeluTanh>, map<GeluErf>,
              map<Silu>, log_each, map<Rsqrt>},
    .arithmetic = {binary<Add>, binary<Sub>, binary<Mul>, binary<Div>},
    .arithmetic_scalar_right = {scalar_right<Add>, scalar_right<Sub>, scalar_right<Mul>,
                                scalar_right<Div>},
    .arithmetic_scalar_left = {scalar_left<Add>, scalar_left<Sub>, scalar_left<Mul>,
                               scalar_left<Div>},
    .backward = {backward<ReluBackward>, backward<SigmoidBackward>, backward<TanhBackward>,
                 backward<GeluTanhBackward>, backward<GeluErfBackward>, backward<SiluBackward>},
    .mask_scale = mask_scale,
    .scale = scale,
    .axpy = axpy,
    .fill = fill,
};

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epilogue::simd {

const PointwiseKernels& pointwise_kernels() {
  static constexpr std::array<const PointwiseKernels*, kTargets> tables = {
      HWY_CHOOSE_FALLBACK(table), HWY_CHOOSE_SSE4(table), HWY_CHOOSE_AVX2(table),
      HWY_CHOOSE_AVX3(table)};
  return pick(tables);
}

}  // namespace epilogue::simd
#endif  // HWY_ONCE
