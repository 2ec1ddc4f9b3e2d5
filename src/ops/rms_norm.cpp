// SPDX-License-Identifier: Apache-2.0
// rms_norm: y = x / sqrt(mean(x^2) + eps) * weight over the last dimensions.
#include <cmath>
#include <limits>
#include <vector>

#include "epilogue/ops.h"
#include "ops/norms.h"
#include "ops/ops.h"
#include "ops/reference.h"
#include "ops/run_op.h"

namespace epilogue {
namespace {

// aten::_fused_rms_norm(input, weight; normalized_shape, eps) -> y, rstd.
OutMetas infer_rms_norm(const Call& call) {
  const Tensor& input = call.in[0];
  const Dims& shape = call.attr<Dims>(0);
  require_norm_arguments(call.op, input, shape, {&call.in[1]});
  require_norm_eps(call.op, rms_norm_eps(call));
  return {{input.sizes(), input.dtype()}, {stat_sizes(input, shape), stat_dtype(input.dtype())}};
}

void rms_norm_reference(const Call& call) {
  const Elements x(call.in[0]);
  const Elements y(call.out[0]);
  const Tensor& weight = call.in[1];
  const auto [rows, n] = norm_rows(call.in[0], call.attr<Dims>(0));
  const double eps = rms_norm_eps(call);
  for (int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (int64_t j = 0; j < n; ++j) squares += std::pow(x.get(r * n + j), 2);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(n) + eps);
    for (int64_t j = 0; j < n; ++j)
      y.set(r * n + j, x.get(r * n + j) * rstd * (weight.defined() ? Elements(weight).get(j) : 1));
    if (call.out.size() == 2) Elements(call.out[1]).set(r, rstd);  // aten::rms_norm gives y alone
  }
}

// aten::_fused_rms_norm_backward(grad_out, input, rstd, weight; normalized_shape, output_mask)
// -> dx, dweight.
OutMetas infer_rms_norm_backward(const Call& call) {
  const Tensor& input = call.in[1];
  const Dims& shape = call.attr<Dims>(0);
  const Dims& mask = call.attr<Dims>(1);
  require_norm_arguments(call.op, input, shape, {&call.in[3]});
  require_norm_statistic(call.op, input, shape, call.in[2]);
  if (!(call.in[0].sizes() == input.sizes()) || call.in[0].dtype() != input.dtype())
    fail(call.op, "a gradient like the input " + to_string(input), to_string(call.in[0]));
  if (mask.rank() != 2) fail(call.op, "an output_mask of 2 numbers", to_string(mask));
  return {masked_out(mask[0] != 0, input.sizes(), input.dtype()),
          masked_out(mask[1] != 0, shape, parameter_dtype(call.in[3], input))};
}

// g = dy * weight, h = x * rstd; dx = rstd * (g - h * mean(g * h)); dweight = sum over rows of dy *
// h.
void rms_norm_backward_reference(const Call& call) {
  const Elements dy(call.in[0]);
  const Elements x(call.in[1]);
  const Tensor& weight = call.in[3];
  const Dims& mask = call.attr<Dims>(1);
  const auto [rows, n] = norm_rows(call.in[1], call.attr<Dims>(0));
  std::vector<double> dweight(static_cast<size_t>(n));
  for (int64_t r = 0; r < rows; ++r) {
    const double rstd = Elements(call.in[2]).get(r);
    auto g = [&](int64_t j) {
      return dy.get(r * n + j) * (weight.defined() ? Elements(weight).get(j) : 1);
    };
    auto h = [&](int64_t j) { return x.get(r * n + j) * rstd; };
    double mean_gh = 0;
    for (int64_t j = 0; j < n; ++j) {
      mean_gh += g(j) * h(j) / static_cast<double>(n);
      dweight[static_cast<size_t>(j)] += dy.get(r * n + j) * h(j);
    }
    for (int64_t j = 0; mask[0] != 0 && j < n; ++j)
      Elements(call.out[0]).set(r * n + j, rstd * (g(j) - h(j) * mean_gh));
  }
  for (int64_t j = 0; mask[1] != 0 && j < n; ++j)
    Elements(call.out[1]).set(j, dweight[static_cast<size_t>(j)]);
}

Gradients rms_norm_vjp(const GradCall& g) {
  const Tensor in[] = {g.dout, g.in[0], g.out[1], g.in[1]};
  const Attr attrs[] = {g.attr<Dims>(0), Dims{g.needs[0], g.needs[1]}};
  const Outputs grads = run_op(kFusedRmsNormBackward, in, attrs);
  return {g.needs[0] ? grads[0] : Tensor(), g.needs[1] ? grads[1] : Tensor()};
}

std::vector<Sample> rms_norm_samples() {
  const SampleInput absent{.sizes = {}, .undefined = true};
  return {{{{{3, 5}}, {{5}}}, {Dims{5}, 1e-5}},
          {{{{67, 33}}, {{33}}}, {Dims{33}, Attr()}},
          {{{{2, 3, 4}}, {{3, 4}}}, {Dims{3, 4}, 1e-6}},
          {{{{7}}, absent}, {Dims{7}, 1e-5}},
          {{{{0, 3}}, {{3}}}, {Dims{3}, 1e-5}}};
}

std::vector<Sample> rms_norm_backward_samples() {
  const SampleInput absent{.sizes = {}, .undefined = true};
  const auto stat = [](Dims sizes) { return SampleInput{sizes, 0.5, 1.5}; };
  return {{{{{3, 5}}, {{3, 5}}, stat({3, 1}), {{5}}}, {Dims{5}, Dims{1, 1}}},
          {{{{67, 33}}, {{67, 33}}, stat({67, 1}), {{33}}}, {Dims{33}, Dims{1, 1}}},
          {{{{67, 33}}, {{67, 33}}, stat({67, 1}), {{33}}}, {Dims{33}, Dims{0, 1}}},
          {{{{2, 3, 4}}, {{2, 3, 4}}, stat({2, 1, 1}), absent}, {Dims{3, 4}, Dims{1, 0}}}};
}

// Flops per element. Forward: mean of squares 2, normalise 1, weight 1.
constexpr double kRmsNormFlops = 4;
// Backward: h 1, g 1, mean 2, dx 3, dweight 2.
constexpr double kRmsNormBackwardFlops = 9;

}  // namespace

double rms_norm_eps(const Call& call) {
  if (call.has_attr(1)) return call.attr<double>(1);
  return call.in[0].dtype() == DType::f64 ? std::numeric_limits<double>::epsilon()
                                          : std::numeric_limits<float>::epsilon();
}

constinit const OpDef kRmsNorm{
    .name = "aten::rms_norm",
    .schema = "(Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None)",
    .doc = "input / sqrt(mean(input^2) + eps) * weight over the last dimensions",
    .kind = OpKind::composite,
    .compose =
        [](const Call& call) { return Outputs(run_op(kFusedRmsNorm, call.in, call.attrs)[0]); },
    .reference = rms_norm_reference,
    .samples = rms_norm_samples};

constinit const OpDef kFusedRmsNorm{
    .name = "aten::_fused_rms_norm",
    .schema = "(Tensor input, int[] normalized_shape, Tensor? weight, float? eps)",
    .doc = "rms_norm with its rstd",
    .infer = infer_rms_norm,
    .flops =
        [](const Call& call) { return kRmsNormFlops * static_cast<double>(call.in[0].numel()); },
    .vjp = rms_norm_vjp,
    .saves = save_input(0) | save_input(1) | kSaveOutput,
    .reference = rms_norm_reference,
    .samples = rms_norm_samples};

constinit const OpDef kFusedRmsNormBackward{
    .name = "aten::_fused_rms_norm_backward",
    .schema =
        "(Tensor grad_out, Tensor input, int[] normalized_shape, Tensor rstd, "
        "Tensor? weight, bool[2] output_mask)",
    .doc = "gradients of _fused_rms_norm: input, weight",
    .infer = infer_rms_norm_backward,
    .flops =
        [](const Call& call) {
          return kRmsNormBackwardFlops * static_cast<double>(call.in[1].numel());
        },
    .reference = rms_norm_backward_reference,
    .samples = rms_norm_backward_samples};

Tensor rms_norm(const Tensor& input, Dims normalized_shape, const Tensor& weight,
                std::optional<double> eps) {
  return run_op(kRmsNorm, {input, weight}, {normalized_shape, eps ? Attr(*eps) : Attr()});
}

}  // namespace epilogue
