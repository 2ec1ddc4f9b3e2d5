// SPDX-License-Identifier: Apache-2.0
// The pointwise functions, once: for the kernels of ops and, as text, for generated programs. Their
// meaning is the reference kernels' (src/ops); operands and results are f32.
//
// kFast: exp and division by the special-function unit, about 2 ulp each: below the rounding of a
// 16-bit result. f32 results take the accurate forms.
#pragma once

#include "pointwise/pointwise_fn.h"

namespace epilogue::cuda {

template <bool kFast>
__host__ __device__ inline float exponential(float x) {
#ifdef __CUDA_ARCH__
  if constexpr (kFast) return __expf(x);
#endif
  return expf(x);
}
template <bool kFast>
__host__ __device__ inline float quotient(float a, float b) {
#ifdef __CUDA_ARCH__
  if constexpr (kFast) return __fdividef(a, b);
#endif
  return a / b;
}
template <bool kFast>
__host__ __device__ inline float logistic(float x) {
  return quotient<kFast>(1.0f, 1.0f + exponential<kFast>(-x));
}

// tanh form: gelu(x) = x (1 + tanh u) / 2 = x sigmoid(2 u), u = beta (x + kappa x^3)
inline constexpr float kBeta = 0.79788456080286536f;  // sqrt(2 / pi)
inline constexpr float kKappa = 0.044715f;
inline constexpr float kInvSqrt2 = 0.70710678118654752f;
inline constexpr float kInvSqrt2Pi = 0.39894228040143268f;
// Squares stay finite: 0 times infinity would make NaN of slopes that are 0.
inline constexpr float kLargestSquare = 1e30f;

// One struct for each elementwise row of the table (pointwise/pointwise_table.h), whose name stands
// in kernel names. run() takes the operands, then the parameters. formula() says which function it
// is.
template <PointwiseFn kFn>
struct Function {};

#define EPILOGUE_FORMULA(Name, fn, ...)                        \
  struct Name {                                                \
    template <bool kFast>                                      \
    __host__ __device__ static float run(__VA_ARGS__);         \
  };                                                           \
  __host__ __device__ Name formula(Function<PointwiseFn::fn>); \
  template <bool kFast>                                        \
  __host__ __device__ inline float Name::run(__VA_ARGS__)

EPILOGUE_FORMULA(Neg, neg, float a) { return -a; }
EPILOGUE_FORMULA(Relu, relu, float a) {
  return a <= 0.0f ? 0.0f : a;  // NaN stays NaN
}
EPILOGUE_FORMULA(Sigmoid, sigmoid, float a) { return logistic<kFast>(a); }
EPILOGUE_FORMULA(Tanh, tanh, float a) { return tanhf(a); }
EPILOGUE_FORMULA(Exp, exp, float a) { return expf(a); }
EPILOGUE_FORMULA(Log, log, float a) { return logf(a); }
EPILOGUE_FORMULA(Rsqrt, rsqrt, float a) { return 1.0f / sqrtf(a); }
EPILOGUE_FORMULA(GeluTanh, gelu_tanh, float x) {
  const float u2 = 2.0f * kBeta * x * (1.0f + kKappa * (x * x));
  return quotient<kFast>(x, 1.0f + exponential<kFast>(-u2));
}
EPILOGUE_FORMULA(GeluErf, gelu_erf, float x) { return 0.5f * x * erfcf(-x * kInvSqrt2); }
EPILOGUE_FORMULA(Silu, silu, float x) { return quotient<kFast>(x, 1.0f + exponential<kFast>(-x)); }
EPILOGUE_FORMULA(Add, add, float a, float b, float alpha) { return a + alpha * b; }
EPILOGUE_FORMULA(Sub, sub, float a, float b, float alpha) { return a - alpha * b; }
EPILOGUE_FORMULA(Mul, mul, float a, float b) { return a * b; }
EPILOGUE_FORMULA(Div, div, float a, float b) { return a / b; }
// Of the backward functions a is dy, b what the forward pass saved.
EPILOGUE_FORMULA(ReluBackward, relu_backward, float dy, float y) { return y <= 0.0f ? 0.0f : dy; }
EPILOGUE_FORMULA(SigmoidBackward, sigmoid_backward, float dy, float y) {
  return dy * y * (1.0f - y);
}
EPILOGUE_FORMULA(TanhBackward, tanh_backward, float dy, float y) { return dy * (1.0f - y * y); }
// s + x s (1 - s) 2 u', s = sigmoid(2 u), u' = beta (1 + 3 kappa x^2)
EPILOGUE_FORMULA(GeluTanhBackward, gelu_tanh_backward, float dy, float x) {
  const float square = fminf(x * x, kLargestSquare);
  const float s = logistic<kFast>(2.0f * kBeta * x * (1.0f + kKappa * square));
  const float slope = kBeta * (1.0f + 3.0f * kKappa * square);
  return dy * (s + x * s * (1.0f - s) * 2.0f * slope);
}
// Phi + x phi
EPILOGUE_FORMULA(GeluErfBackward, gelu_erf_backward, float dy, float x) {
  const float density = kInvSqrt2Pi * expf(-0.5f * fminf(x * x, kLargestSquare));
  return dy * (0.5f * erfcf(-x * kInvSqrt2) + x * density);
}
// s (1 + x (1 - s))
EPILOGUE_FORMULA(SiluBackward, silu_backward, float dy, float x) {
  const float s = logistic<kFast>(x);
  return dy * (s * (1.0f + x * (1.0f - s)));
}

EPILOGUE_FORMULA(LeakyRelu, leaky_relu, float x, float slope) { return x > 0.0f ? x : x * slope; }
EPILOGUE_FORMULA(LeakyReluBackward, leaky_relu_backward, float dy, float x, float slope) {
  return x > 0.0f ? dy : dy * slope;
}
EPILOGUE_FORMULA(Elu, elu, float x, float alpha, float scale, float input_scale) {
  return x < 0.0f ? expm1f(x * input_scale) * (alpha * scale) : x * scale;
}
EPILOGUE_FORMULA(EluBackward, elu_backward, float dy, float x, float alpha, float scale,
                 float input_scale) {
  if (x <= 0.0f) return dy * (alpha * scale * input_scale) * exponential<kFast>(x * input_scale);
  return dy * scale;
}
EPILOGUE_FORMULA(Softplus, softplus, float x, float beta, float threshold) {
  return x * beta > threshold ? x : log1pf(expf(x * beta)) / beta;
}
EPILOGUE_FORMULA(SoftplusBackward, softplus_backward, float dy, float x, float beta,
                 float threshold) {
  return x * beta > threshold ? dy : dy * logistic<kFast>(x * beta);
}
// tanh(log(1 + e^x)) = n / (n + 2), n = e^x (e^x + 2).
__host__ __device__ inline float mish_power(float x) {
  const float e = expf(x > 20.0f ? 20.0f : x);  // NaN stays NaN
  return e * (e + 2.0f);
}
EPILOGUE_FORMULA(Mish, mish, float x) {
  const float n = mish_power(x);
  return x * (n / (n + 2.0f));
}
EPILOGUE_FORMULA(MishBackward, mish_backward, float dy, float x) {
  const float n = mish_power(x);
  const float rest = 4.0f * ((n + 1.0f) / (n + 2.0f)) / (n + 2.0f);
  const float slope = x > 20.0f ? 0.0f : logistic<false>(x) * rest;
  return dy * (n / (n + 2.0f) + x * slope);
}
EPILOGUE_FORMULA(Hardswish, hardswish, float x) {
  const float gate = x + 3.0f;
  return x * ((gate < 0.0f ? 0.0f : gate > 6.0f ? 6.0f : gate) * (1.0f / 6.0f));
}
EPILOGUE_FORMULA(HardswishBackward, hardswish_backward, float dy, float x) {
  return x < -3.0f ? 0.0f : x > 3.0f ? dy : dy * (x * (1.0f / 3.0f) + 0.5f);
}
EPILOGUE_FORMULA(Sqrt, sqrt, float x) { return sqrtf(x); }
EPILOGUE_FORMULA(Abs, abs, float x) { return fabsf(x); }
EPILOGUE_FORMULA(Sgn, sgn, float x) { return static_cast<float>((x > 0.0f) - (x < 0.0f)); }
EPILOGUE_FORMULA(Sin, sin, float x) { return sinf(x); }
EPILOGUE_FORMULA(Cos, cos, float x) { return cosf(x); }
EPILOGUE_FORMULA(Pow, pow, float x, float exponent) {
  if (exponent == 2.0f) return x * x;
  return powf(x, exponent);
}
// NaN of either comes through.
__host__ __device__ inline float larger(float a, float b) { return a >= b || a != a ? a : b; }
__host__ __device__ inline float smaller(float a, float b) { return a <= b || a != a ? a : b; }
EPILOGUE_FORMULA(Clamp, clamp, float x, float low, float high) {
  return smaller(larger(x, low), high);
}
EPILOGUE_FORMULA(Maximum, maximum, float a, float b) { return larger(a, b); }
EPILOGUE_FORMULA(Minimum, minimum, float a, float b) { return smaller(a, b); }
// Comparisons: 1 or 0.
EPILOGUE_FORMULA(Eq, eq, float a, float b) { return a == b ? 1.0f : 0.0f; }
EPILOGUE_FORMULA(Ne, ne, float a, float b) { return a != b ? 1.0f : 0.0f; }
EPILOGUE_FORMULA(Lt, lt, float a, float b) { return a < b ? 1.0f : 0.0f; }
EPILOGUE_FORMULA(Le, le, float a, float b) { return a <= b ? 1.0f : 0.0f; }
EPILOGUE_FORMULA(Gt, gt, float a, float b) { return a > b ? 1.0f : 0.0f; }
EPILOGUE_FORMULA(Ge, ge, float a, float b) { return a >= b ? 1.0f : 0.0f; }
EPILOGUE_FORMULA(Where, where, float condition, float a, float b) {
  return condition != 0.0f ? a : b;
}

#undef EPILOGUE_FORMULA

}  // namespace epilogue::cuda
