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

// One struct for each elementwise row of the table (pointwise/pointwise_fn.h). run() takes the
// operands, then the parameters. formula() says which function it is.
template <PointwiseFn kFn>
struct Function {};

struct Neg {
  template <bool kFast>
  __host__ __device__ static float run(float a) {
    return -a;
  }
};
Neg formula(Function<PointwiseFn::neg>);
struct Relu {
  template <bool kFast>
  __host__ __device__ static float run(float a) {
    return a <= 0.0f ? 0.0f : a;  // NaN stays NaN
  }
};
Relu formula(Function<PointwiseFn::relu>);
struct Sigmoid {
  template <bool kFast>
  __host__ __device__ static float run(float a) {
    return logistic<kFast>(a);
  }
};
Sigmoid formula(Function<PointwiseFn::sigmoid>);
struct Tanh {
  template <bool kFast>
  __host__ __device__ static float run(float a) {
    return tanhf(a);
  }
};
Tanh formula(Function<PointwiseFn::tanh>);
struct Exp {
  template <bool kFast>
  __host__ __device__ static float run(float a) {
    return expf(a);
  }
};
Exp formula(Function<PointwiseFn::exp>);
struct Log {
  template <bool kFast>
  __host__ __device__ static float run(float a) {
    return logf(a);
  }
};
Log formula(Function<PointwiseFn::log>);
struct Rsqrt {
  template <bool kFast>
  __host__ __device__ static float run(float a) {
    return 1.0f / sqrtf(a);
  }
};
Rsqrt formula(Function<PointwiseFn::rsqrt>);
struct GeluTanh {
  template <bool kFast>
  __host__ __device__ static float run(float x) {
    const float u2 = 2.0f * kBeta * x * (1.0f + kKappa * (x * x));
    return quotient<kFast>(x, 1.0f + exponential<kFast>(-u2));
  }
};
GeluTanh formula(Function<PointwiseFn::gelu_tanh>);
struct GeluErf {
  template <bool kFast>
  __host__ __device__ static float run(float x) {
    return 0.5f * x * erfcf(-x * kInvSqrt2);
  }
};
GeluErf formula(Function<PointwiseFn::gelu_erf>);
struct Silu {
  template <bool kFast>
  __host__ __device__ static float run(float x) {
    return quotient<kFast>(x, 1.0f + exponential<kFast>(-x));
  }
};
Silu formula(Function<PointwiseFn::silu>);
struct Add {
  template <bool kFast>
  __host__ __device__ static float run(float a, float b, float alpha) {
    return a + alpha * b;
  }
};
Add formula(Function<PointwiseFn::add>);
struct Sub {
  template <bool kFast>
  __host__ __device__ static float run(float a, float b, float alpha) {
    return a - alpha * b;
  }
};
Sub formula(Function<PointwiseFn::sub>);
struct Mul {
  template <bool kFast>
  __host__ __device__ static float run(float a, float b) {
    return a * b;
  }
};
Mul formula(Function<PointwiseFn::mul>);
struct Div {
  template <bool kFast>
  __host__ __device__ static float run(float a, float b) {
    return a / b;
  }
};
Div formula(Function<PointwiseFn::div>);
// Of the backward functions a is dy, b what the forward pass saved.
struct ReluBackward {
  template <bool kFast>
  __host__ __device__ static float run(float dy, float y) {
    return y <= 0.0f ? 0.0f : dy;
  }
};
ReluBackward formula(Function<PointwiseFn::relu_backward>);
struct SigmoidBackward {
  template <bool kFast>
  __host__ __device__ static float run(float dy, float y) {
    return dy * y * (1.0f - y);
  }
};
SigmoidBackward formula(Function<PointwiseFn::sigmoid_backward>);
struct TanhBackward {
  template <bool kFast>
  __host__ __device__ static float run(float dy, float y) {
    return dy * (1.0f - y * y);
  }
};
TanhBackward formula(Function<PointwiseFn::tanh_backward>);
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
GeluTanhBackward formula(Function<PointwiseFn::gelu_tanh_backward>);
// Phi + x phi
struct GeluErfBackward {
  template <bool kFast>
  __host__ __device__ static float run(float dy, float x) {
    const float density = kInvSqrt2Pi * expf(-0.5f * fminf(x * x, kLargestSquare));
    return dy * (0.5f * erfcf(-x * kInvSqrt2) + x * density);
  }
};
GeluErfBackward formula(Function<PointwiseFn::gelu_erf_backward>);
// s (1 + x (1 - s))
struct SiluBackward {
  template <bool kFast>
  __host__ __device__ static float run(float dy, float x) {
    const float s = logistic<kFast>(x);
    return dy * (s * (1.0f + x * (1.0f - s)));
  }
};
SiluBackward formula(Function<PointwiseFn::silu_backward>);

}  // namespace epilogue::cuda
