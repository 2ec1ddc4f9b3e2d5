// SPDX-License-Identifier: Apache-2.0
// The pointwise functions, once: for the kernels of ops and, as text, for generated programs. Their
// meaning is the reference kernels' (src/ops); operands and results are f32.
//
// kFast: exp and division by the special-function unit, about 2 ulp each: below the rounding of a
// 16-bit result. f32 results take the accurate forms.
#pragma once

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

// a, b: the operands; unary functions ignore b. alpha scales the second operand of add and sub.
struct Neg {
  template <bool kFast>
  __host__ __device__ static float run(float a, float, float) {
    return -a;
  }
};
struct Relu {
  template <bool kFast>
  __host__ __device__ static float run(float a, float, float) {
    return a <= 0.0f ? 0.0f : a;  // NaN stays NaN
  }
};
struct Sigmoid {
  template <bool kFast>
  __host__ __device__ static float run(float a, float, float) {
    return logistic<kFast>(a);
  }
};
struct Tanh {
  template <bool kFast>
  __host__ __device__ static float run(float a, float, float) {
    return tanhf(a);
  }
};
struct Exp {
  template <bool kFast>
  __host__ __device__ static float run(float a, float, float) {
    return expf(a);
  }
};
struct Log {
  template <bool kFast>
  __host__ __device__ static float run(float a, float, float) {
    return logf(a);
  }
};
struct Rsqrt {
  template <bool kFast>
  __host__ __device__ static float run(float a, float, float) {
    return 1.0f / sqrtf(a);
  }
};
struct GeluTanh {
  template <bool kFast>
  __host__ __device__ static float run(float x, float, float) {
    const float u2 = 2.0f * kBeta * x * (1.0f + kKappa * (x * x));
    return quotient<kFast>(x, 1.0f + exponential<kFast>(-u2));
  }
};
struct GeluErf {
  template <bool kFast>
  __host__ __device__ static float run(float x, float, float) {
    return 0.5f * x * erfcf(-x * kInvSqrt2);
  }
};
struct Silu {
  template <bool kFast>
  __host__ __device__ static float run(float x, float, float) {
    return quotient<kFast>(x, 1.0f + exponential<kFast>(-x));
  }
};
struct Add {
  template <bool kFast>
  __host__ __device__ static float run(float a, float b, float alpha) {
    return a + alpha * b;
  }
};
struct Sub {
  template <bool kFast>
  __host__ __device__ static float run(float a, float b, float alpha) {
    return a - alpha * b;
  }
};
struct Mul {
  template <bool kFast>
  __host__ __device__ static float run(float a, float b, float) {
    return a * b;
  }
};
struct Div {
  template <bool kFast>
  __host__ __device__ static float run(float a, float b, float) {
    return a / b;
  }
};
// Of the backward functions a is dy, b what the forward pass saved.
struct ReluBackward {
  template <bool kFast>
  __host__ __device__ static float run(float dy, float y, float) {
    return y <= 0.0f ? 0.0f : dy;
  }
};
struct SigmoidBackward {
  template <bool kFast>
  __host__ __device__ static float run(float dy, float y, float) {
    return dy * y * (1.0f - y);
  }
};
struct TanhBackward {
  template <bool kFast>
  __host__ __device__ static float run(float dy, float y, float) {
    return dy * (1.0f - y * y);
  }
};
// s + x s (1 - s) 2 u', s = sigmoid(2 u), u' = beta (1 + 3 kappa x^2)
struct GeluTanhBackward {
  template <bool kFast>
  __host__ __device__ static float run(float dy, float x, float) {
    const float square = fminf(x * x, kLargestSquare);
    const float s = logistic<kFast>(2.0f * kBeta * x * (1.0f + kKappa * square));
    const float slope = kBeta * (1.0f + 3.0f * kKappa * square);
    return dy * (s + x * s * (1.0f - s) * 2.0f * slope);
  }
};
// Phi + x phi
struct GeluErfBackward {
  template <bool kFast>
  __host__ __device__ static float run(float dy, float x, float) {
    const float density = kInvSqrt2Pi * expf(-0.5f * fminf(x * x, kLargestSquare));
    return dy * (0.5f * erfcf(-x * kInvSqrt2) + x * density);
  }
};
// s (1 + x (1 - s))
struct SiluBackward {
  template <bool kFast>
  __host__ __device__ static float run(float dy, float x, float) {
    const float s = logistic<kFast>(x);
    return dy * (s * (1.0f + x * (1.0f - s)));
  }
};

}  // namespace epilogue::cuda
