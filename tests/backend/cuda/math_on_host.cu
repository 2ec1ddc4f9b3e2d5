// SPDX-License-Identifier: Apache-2.0
#include "math_on_host.h"

#include "backend/cuda/kernels/math.cuh"
#include "backend/cuda/kernels/optimizer_math.cuh"

namespace epilogue::cuda {

namespace {

using OnHost = float (*)(const float* operands, const float* parameters);

template <PointwiseFn kFn, size_t... kOperand, size_t... kParameter>
float run_formula(const float* operands, const float* parameters, std::index_sequence<kOperand...>,
                  std::index_sequence<kParameter...>) {
  using F = decltype(formula(Function<kFn>()));
  return F::template run<false>(operands[kOperand]..., parameters[kParameter]...);
}
template <size_t kIndex>
float run_row(const float* operands, const float* parameters) {
  constexpr PointwiseFn kFn = kPointwiseTable[kIndex].fn;
  if constexpr (is_elementwise(kFn))
    return run_formula<kFn>(operands, parameters, std::make_index_sequence<operand_count(kFn)>(),
                            std::make_index_sequence<parameter_count(pointwise_row(kFn))>());
  return 0;
}
template <size_t... kIndex>
float run_any(size_t fn, const float* operands, const float* parameters,
              std::index_sequence<kIndex...>) {
  constexpr OnHost kRows[] = {run_row<kIndex>...};
  return kRows[fn](operands, parameters);
}

}  // namespace

float on_host(PointwiseFn fn, std::initializer_list<float> operands,
              const PointwiseParameters& parameters) {
  return run_any(static_cast<size_t>(fn), operands.begin(), parameters.data(),
                 PointwiseFnSequence());
}
float on_host(PointwiseFn fn, std::initializer_list<float> operands) {
  return on_host(fn, operands, default_parameters(fn));
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
