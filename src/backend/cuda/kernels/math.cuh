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

// One struct for each elementwise row of the table (pointwise/pointwise_table.h). run() takes the
// operands, then the parameters. formula() says which function it is.
template <PointwiseFn kFn>
struct Function {};

struct Neg {
  template <bool kFast>
  __host__ __device__ static float run(float a) {
    return -a;
  }
};
__host__ __device__ Neg formula(Function<PointwiseFn::neg>);
struct Relu {
  template <bool kFast>
  __host__ __device__ static float run(float a) {
    return a <= 0.0f ? 0.0f : a;  // NaN stays NaN
  }
};
__host__ __device__ Relu formula(Function<PointwiseFn::relu>);
struct Sigmoid {
  template <bool kFast>
  __host__ __device__ static float run(float a) {
    return logistic<kFast>(a);
  }
};
__host__ __device__ Sigmoid formula(Function<PointwiseFn::sigmoid>);
struct Tanh {
  template <bool kFast>
  __host__ __device__ static float run(float a) {
    return tanhf(a);
  }
};
__host__ __device__ Tanh formula(Function<PointwiseFn::tanh>);
struct Exp {
  template <bool kFast>
  __host__ __device__ static float run(float a) {
    return expf(a);
  }
};
__host__ __device__ Exp formula(Function<PointwiseFn::exp>);
struct Log {
  template <bool kFast>
  __host__ __device__ static float run(float a) {
    return logf(a);
  }
};
__host__ __device__ Log formula(Function<PointwiseFn::log>);
struct Rsqrt {
  template <bool kFast>
  __host__ __device__ static float run(float a) {
    return 1.0f / sqrtf(a);
  }
};
__host__ __device__ Rsqrt formula(Function<PointwiseFn::rsqrt>);
struct GeluTanh {
  template <bool kFast>
  __host__ __device__ static float run(float x) {
    const float u2 = 2.0f * kBeta * x * (1.0f + kKappa * (x * x));
    return quotient<kFast>(x, 1.0f + exponential<kFast>(-u2));
  }
};
__host__ __device__ GeluTanh formula(Function<PointwiseFn::gelu_tanh>);
struct GeluErf {
  template <bool kFast>
  __host__ __device__ static float run(float x) {
    return 0.5f * x * erfcf(-x * kInvSqrt2);
  }
};
__host__ __device__ GeluErf formula(Function<PointwiseFn::gelu_erf>);
struct Silu {
  template <bool kFast>
  __host__ __device__ static float run(float x) {
    return quotient<kFast>(x, 1.0f + exponential<kFast>(-x));
  }
};
__host__ __device__ Silu formula(Function<PointwiseFn::silu>);
struct Add {
  template <bool kFast>
  __host__ __device__ static float run(float a, float b, float alpha) {
    return a + alpha * b;
  }
};
__host__ __device__ Add formula(Function<PointwiseFn::add>);
struct Sub {
  template <bool kFast>
  __host__ __device__ static float run(float a, float b, float alpha) {
    return a - alpha * b;
  }
};
__host__ __device__ Sub formula(Function<PointwiseFn::sub>);
struct Mul {
  template <bool kFast>
  __host__ __device__ static float run(float a, float b) {
    return a * b;
  }
};
__host__ __device__ Mul formula(Function<PointwiseFn::mul>);
struct Div {
  template <bool kFast>
  __host__ __device__ static float run(float a, float b) {
    return a / b;
  }
};
__host__ __device__ Div formula(Function<PointwiseFn::div>);
// Of the backward functions a is dy, b what the forward pass saved.
struct ReluBackward {
  template <bool kFast>
  __host__ __device__ static float run(float dy, float y) {
    return y <= 0.0f ? 0.0f : dy;
  }
};
__host__ __device__ ReluBackward formula(Function<PointwiseFn::relu_backward>);
struct SigmoidBackward {
  template <bool kFast>
  __host__ __device__ static float run(float dy, float y) {
    return dy * y * (1.0f - y);
  }
};
__host__ __device__ SigmoidBackward formula(Function<PointwiseFn::sigmoid_backward>);
struct TanhBackward {
  template <bool kFast>
  __host__ __device__ static float run(float dy, float y) {
    return dy * (1.0f - y * y);
  }
};
__host__ __device__ TanhBackward formula(Function<PointwiseFn::tanh_backward>);
// s + x s (1 - s) 2 u', s = sigmoid(2 u), u' = beta (1 + 3 kappa x^2)
struct GeluTanhBackward {
  template <bool kFast>
  __host__ __device__ static float run(float dy, float x) {
    const float square = fminf(x * x, kLargestSquare);
    const float s = logistic<kFast>(2.0f * kBeta * x * (1.0f + kKappa * square));
    const float slope = kBeta * (1.0f + 3.0f * kKappa * square);
    return dy * (s + x * s * (1.0f - s) * 2.0f * slope);
  }
};
__host__ __device__ GeluTanhBackward formula(Function<PointwiseFn::gelu_tanh_backward>);
// Phi + x phi
struct GeluErfBackward {
  template <bool kFast>
  __host__ __device__ static float run(float dy, float x) {
    const float density = kInvSqrt2Pi * expf(-0.5f * fminf(x * x, kLargestSquare));
    return dy * (0.5f * erfcf(-x * kInvSqrt2) + x * density);
  }
};
__host__ __device__ GeluErfBackward formula(Function<PointwiseFn::gelu_erf_backward>);
// s (1 + x (1 - s))
struct SiluBackward {
  template <bool kFast>
  __host__ __device__ static float run(float dy, float x) {
    const float s = logistic<kFast>(x);
    return dy * (s * (1.0f + x * (1.0f - s)));
  }
};
__host__ __device__ SiluBackward formula(Function<PointwiseFn::silu_backward>);

struct LeakyRelu {
  template <bool kFast>
  __host__ __device__ static float run(float x, float slope) {
    return x > 0.0f ? x : x * slope;
  }
};
__host__ __device__ LeakyRelu formula(Function<PointwiseFn::leaky_relu>);
struct LeakyReluBackward {
  template <bool kFast>
  __host__ __device__ static float run(float dy, float x, float slope) {
    return x > 0.0f ? dy : dy * slope;
  }
};
__host__ __device__ LeakyReluBackward formula(Function<PointwiseFn::leaky_relu_backward>);
struct Elu {
  template <bool kFast>
  __host__ __device__ static float run(float x, float alpha, float scale, float input_scale) {
    return x < 0.0f ? expm1f(x * input_scale) * (alpha * scale) : x * scale;
  }
};
__host__ __device__ Elu formula(Function<PointwiseFn::elu>);
struct EluBackward {
  template <bool kFast>
  __host__ __device__ static float run(float dy, float x, float alpha, float scale,
                                       float input_scale) {
    if (x <= 0.0f) return dy * (alpha * scale * input_scale) * exponential<kFast>(x * input_scale);
    return dy * scale;
  }
};
__host__ __device__ EluBackward formula(Function<PointwiseFn::elu_backward>);
struct Softplus {
  template <bool kFast>
  __host__ __device__ static float run(float x, float beta, float threshold) {
    return x * beta > threshold ? x : log1pf(expf(x * beta)) / beta;
  }
};
__host__ __device__ Softplus formula(Function<PointwiseFn::softplus>);
struct SoftplusBackward {
  template <bool kFast>
  __host__ __device__ static float run(float dy, float x, float beta, float threshold) {
    return x * beta > threshold ? dy : dy * logistic<kFast>(x * beta);
  }
};
__host__ __device__ SoftplusBackward formula(Function<PointwiseFn::softplus_backward>);
// tanh(log(1 + e^x)) = n / (n + 2), n = e^x (e^x + 2).
__host__ __device__ inline float mish_power(float x) {
  const float e = expf(x > 20.0f ? 20.0f : x);  // NaN stays NaN
  return e * (e + 2.0f);
}
struct Mish {
  template <bool kFast>
  __host__ __device__ static float run(float x) {
    const float n = mish_power(x);
    return x * (n / (n + 2.0f));
  }
};
__host__ __device__ Mish formula(Function<PointwiseFn::mish>);
struct MishBackward {
  template <bool kFast>
  __host__ __device__ static float run(float dy, float x) {
    const float n = mish_power(x);
    const float rest = 4.0f * ((n + 1.0f) / (n + 2.0f)) / (n + 2.0f);
    const float slope = x > 20.0f ? 0.0f : logistic<false>(x) * rest;
    return dy * (n / (n + 2.0f) + x * slope);
  }
};
__host__ __device__ MishBackward formula(Function<PointwiseFn::mish_backward>);
struct Hardswish {
  template <bool kFast>
  __host__ __device__ static float run(float x) {
    const float gate = x + 3.0f;
    return x * ((gate < 0.0f ? 0.0f : gate > 6.0f ? 6.0f : gate) * (1.0f / 6.0f));
  }
};
__host__ __device__ Hardswish formula(Function<PointwiseFn::hardswish>);
struct HardswishBackward {
  template <bool kFast>
  __host__ __device__ static float run(float dy, float x) {
    return x < -3.0f ? 0.0f : x > 3.0f ? dy : dy * (x * (1.0f / 3.0f) + 0.5f);
  }
};
__host__ __device__ HardswishBackward formula(Function<PointwiseFn::hardswish_backward>);
struct Sqrt {
  template <bool kFast>
  __host__ __device__ static float run(float x) {
    return sqrtf(x);
  }
};
__host__ __device__ Sqrt formula(Function<PointwiseFn::sqrt>);
struct Abs {
  template <bool kFast>
  __host__ __device__ static float run(float x) {
    return fabsf(x);
  }
};
__host__ __device__ Abs formula(Function<PointwiseFn::abs>);
struct Sgn {
  template <bool kFast>
  __host__ __device__ static float run(float x) {
    return static_cast<float>((x > 0.0f) - (x < 0.0f));
  }
};
__host__ __device__ Sgn formula(Function<PointwiseFn::sgn>);
struct Sin {
  template <bool kFast>
  __host__ __device__ static float run(float x) {
    return sinf(x);
  }
};
__host__ __device__ Sin formula(Function<PointwiseFn::sin>);
struct Cos {
  template <bool kFast>
  __host__ __device__ static float run(float x) {
    return cosf(x);
  }
};
__host__ __device__ Cos formula(Function<PointwiseFn::cos>);
struct Pow {
  template <bool kFast>
  __host__ __device__ static float run(float x, float exponent) {
    if (exponent == 2.0f) return x * x;
    return powf(x, exponent);
  }
};
__host__ __device__ Pow formula(Function<PointwiseFn::pow>);
// NaN of either comes through.
__host__ __device__ inline float larger(float a, float b) { return a >= b || a != a ? a : b; }
__host__ __device__ inline float smaller(float a, float b) { return a <= b || a != a ? a : b; }
struct Clamp {
  template <bool kFast>
  __host__ __device__ static float run(float x, float low, float high) {
    return smaller(larger(x, low), high);
  }
};
__host__ __device__ Clamp formula(Function<PointwiseFn::clamp>);
struct Maximum {
  template <bool kFast>
  __host__ __device__ static float run(float a, float b) {
    return larger(a, b);
  }
};
__host__ __device__ Maximum formula(Function<PointwiseFn::maximum>);
struct Minimum {
  template <bool kFast>
  __host__ __device__ static float run(float a, float b) {
    return smaller(a, b);
  }
};
__host__ __device__ Minimum formula(Function<PointwiseFn::minimum>);
// Comparisons: 1 or 0.
struct Eq {
  template <bool kFast>
  __host__ __device__ static float run(float a, float b) {
    return a == b ? 1.0f : 0.0f;
  }
};
__host__ __device__ Eq formula(Function<PointwiseFn::eq>);
struct Ne {
  template <bool kFast>
  __host__ __device__ static float run(float a, float b) {
    return a != b ? 1.0f : 0.0f;
  }
};
__host__ __device__ Ne formula(Function<PointwiseFn::ne>);
struct Lt {
  template <bool kFast>
  __host__ __device__ static float run(float a, float b) {
    return a < b ? 1.0f : 0.0f;
  }
};
__host__ __device__ Lt formula(Function<PointwiseFn::lt>);
struct Le {
  template <bool kFast>
  __host__ __device__ static float run(float a, float b) {
    return a <= b ? 1.0f : 0.0f;
  }
};
__host__ __device__ Le formula(Function<PointwiseFn::le>);
struct Gt {
  template <bool kFast>
  __host__ __device__ static float run(float a, float b) {
    return a > b ? 1.0f : 0.0f;
  }
};
__host__ __device__ Gt formula(Function<PointwiseFn::gt>);
struct Ge {
  template <bool kFast>
  __host__ __device__ static float run(float a, float b) {
    return a >= b ? 1.0f : 0.0f;
  }
};
__host__ __device__ Ge formula(Function<PointwiseFn::ge>);
struct Where {
  template <bool kFast>
  __host__ __device__ static float run(float condition, float a, float b) {
    return condition != 0.0f ? a : b;
  }
};
__host__ __device__ Where formula(Function<PointwiseFn::where>);

}  // namespace epilogue::cuda
