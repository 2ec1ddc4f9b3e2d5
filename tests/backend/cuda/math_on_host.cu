// SPDX-License-Identifier: Apache-2.0
#include "math_on_host.h"

#include "backend/cuda/kernels/math.cuh"
#include "backend/cuda/kernels/optimizer_math.cuh"

namespace epilogue::cuda {

float on_host(PointwiseFn fn, float a, float b, float alpha) {
  switch (fn) {
    case PointwiseFn::neg: return Neg::run<false>(a, b, alpha);
    case PointwiseFn::relu: return Relu::run<false>(a, b, alpha);
    case PointwiseFn::sigmoid: return Sigmoid::run<false>(a, b, alpha);
    case PointwiseFn::tanh: return Tanh::run<false>(a, b, alpha);
    case PointwiseFn::exp: return Exp::run<false>(a, b, alpha);
    case PointwiseFn::gelu_tanh: return GeluTanh::run<false>(a, b, alpha);
    case PointwiseFn::gelu_erf: return GeluErf::run<false>(a, b, alpha);
    case PointwiseFn::silu: return Silu::run<false>(a, b, alpha);
    case PointwiseFn::log: return Log::run<false>(a, b, alpha);
    case PointwiseFn::rsqrt: return Rsqrt::run<false>(a, b, alpha);
    case PointwiseFn::add: return Add::run<false>(a, b, alpha);
    case PointwiseFn::sub: return Sub::run<false>(a, b, alpha);
    case PointwiseFn::mul: return Mul::run<false>(a, b, alpha);
    case PointwiseFn::div: return Div::run<false>(a, b, alpha);
    case PointwiseFn::relu_backward: return ReluBackward::run<false>(a, b, alpha);
    case PointwiseFn::sigmoid_backward: return SigmoidBackward::run<false>(a, b, alpha);
    case PointwiseFn::tanh_backward: return TanhBackward::run<false>(a, b, alpha);
    case PointwiseFn::gelu_tanh_backward: return GeluTanhBackward::run<false>(a, b, alpha);
    case PointwiseFn::gelu_erf_backward: return GeluErfBackward::run<false>(a, b, alpha);
    case PointwiseFn::silu_backward: return SiluBackward::run<false>(a, b, alpha);
    case PointwiseFn::row_sum:
    case PointwiseFn::row_mean:
    case PointwiseFn::row_max:
    case PointwiseFn::column_sum: break;
  }
  return 0;
}

void adam_on_host(const AdamStep& step, float inverse_scale, float steps, float grad, float& param,
                  float& exp_avg, float& exp_avg_sq, float* largest) {
  AdamElement e = {param, exp_avg, exp_avg_sq, largest != nullptr ? *largest : 0.0f};
  adam_element(step, adam_factors(step, inverse_scale, steps), grad, largest != nullptr, e);
  param = e.param;
  exp_avg = e.exp_avg;
  exp_avg_sq = e.exp_avg_sq;
  if (largest != nullptr) *largest = e.largest;
}

void sgd_on_host(const SgdStep& step, float inverse_scale, float grad, float& param,
                 float* buffer) {
  SgdElement e = {param, buffer != nullptr ? *buffer : 0.0f};
  sgd_element(step, inverse_scale * step.sign, grad, buffer != nullptr, e);
  param = e.param;
  if (buffer != nullptr) *buffer = e.buffer;
}

}  // namespace epilogue::cuda
