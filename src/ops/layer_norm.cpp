// SPDX-License-Identifier: Apache-2.0
// layer_norm: y = (x - mean) * rstd * weight + bias over the last dimensions, biased variance.
#include <cmath>
#include <vector>

#include "epilogue/ops.h"
#include "ops/norms.h"
#include "ops/ops.h"
#include "ops/reference.h"
#include "ops/run_op.h"

namespace epilogue {
namespace {

// aten::native_layer_norm(input, weight, bias; normalized_shape, eps) -> y, mean, rstd.
OutMetas infer_layer_norm(const Call& call) {
  const Tensor& input = call.in[0];
  const Dims& shape = call.attr<Dims>(0);
  require_norm_arguments(call.op, input, shape, {&call.in[1], &call.in[2]});
  require_norm_eps(call.op, call.attr<double>(1));
  const OutMeta stat{stat_sizes(input, shape), stat_dtype(input.dtype())};
  return {{input.sizes(), input.dtype()}, stat, stat};
}

void layer_norm_reference(const Call& call) {
  const Elements x(call.in[0]);
  const Elements y(call.out[0]);
  const auto [rows, n] = norm_rows(call.in[0], call.attr<Dims>(0));
  const Tensor& weight = call.in[1];
  const Tensor& bias = call.in[2];
  for (int64_t r = 0; r < rows; ++r) {
    double mean = 0;
    for (int64_t j = 0; j < n; ++j) mean += x.get(r * n + j);
    mean /= static_cast<double>(n);
    double variance = 0;
    for (int64_t j = 0; j < n; ++j) variance += std::pow(x.get(r * n + j) - mean, 2);
    variance /= static_cast<double>(n);
    const double rstd = 1 / std::sqrt(variance + call.attr<double>(1));
    for (int64_t j = 0; j < n; ++j) {
      const double w = weight.defined() ? Elements(weight).get(j) : 1;
      const double b = bias.defined() ? Elements(bias).get(j) : 0;
      y.set(r * n + j, (x.get(r * n + j) - mean) * rstd * w + b);
    }
    if (call.out.size() < 3) continue;  // aten::layer_norm gives y alone
    Elements(call.out[1]).set(r, mean);
    Elements(call.out[2]).set(r, rstd);
  }
}

// aten::native_layer_norm_backward(grad_out, input, mean, rstd, weight, bias; normalized_shape,
// output_mask) -> dx, dweight, dbias.
OutMetas infer_layer_norm_backward(const Call& call) {
  const Tensor& input = call.in[1];
  const Dims& shape = call.attr<Dims>(0);
  const Dims& mask = call.attr<Dims>(1);
  require_norm_arguments(call.op, input, shape, {&call.in[4], &call.in[5]});
  if (!(call.in[0].sizes() == input.sizes()) || call.in[0].dtype() != input.dtype())
    fail(call.op, "a gradient like the input " + to_string(input), to_string(call.in[0]));
  if (mask.rank() != 3) fail(call.op, "an output_mask of 3 numbers", to_string(mask));
  require_norm_statistic(call.op, input, shape, call.in[2]);
  require_norm_statistic(call.op, input, shape, call.in[3]);
  return {masked_out(mask[0] != 0, input.sizes(), input.dtype()),
          masked_out(mask[1] != 0, shape, parameter_dtype(call.in[4], input)),
          masked_out(mask[2] != 0, shape, parameter_dtype(call.in[5], input))};
}

// g = dy * weight, h = (x - mean) * rstd; dx = rstd * (g - mean(g) - h * mean(g * h));
// dweight = sum over rows of dy * h; dbias = sum over rows of dy.
void layer_norm_backward_reference(const Call& call) {
  const Elements dy(call.in[0]);
  const Elements x(call.in[1]);
  const Tensor& weight = call.in[4];
  const Dims& mask = call.attr<Dims>(1);
  const auto [rows, n] = norm_rows(call.in[1], call.attr<Dims>(0));
  std::vector<double> dweight(static_cast<size_t>(n));
  std::vector<double> dbias(static_cast<size_t>(n));
  for (int64_t r = 0; r < rows; ++r) {
    const double mean = Elements(call.in[2]).get(r);
    const double rstd = Elements(call.in[3]).get(r);
    auto g = [&](int64_t j) {
      return dy.get(r * n + j) * (weight.defined() ? Elements(weight).get(j) : 1);
    };
    auto h = [&](int64_t j) { return (x.get(r * n + j) - mean) * rstd; };
    double mean_g = 0;
    double mean_gh = 0;
    for (int64_t j = 0; j < n; ++j) {
      mean_g += g(j) / static_cast<double>(n);
      mean_gh += g(j) * h(j) / static_cast<double>(n);
      dweight[static_cast<size_t>(j)] += dy.get(r * n + j) * h(j);
      dbias[static_cast<size_t>(j)] += dy.get(r * n + j);
    }
    for (int64_t j = 0; mask[0] != 0 && j < n; ++j)
      Elements(call.out[0]).set(r * n + j, rstd * (g(j) - mean_g - h(j) * mean_gh));
  }
  for (int64_t j = 0; j < n; ++j) {
    if (mask[1] != 0) Elements(call.out[1]).set(j, dweight[static_cast<size_t>(j)]);
    if (mask[2] != 0) Elements(call.out[2]).set(j, dbias[static_cast<size_t>(j)]);
  }
}

Gradients layer_norm_vjp(const GradCall& g) {
  const Tensor in[] = {g.dout, g.in[0], g.out[1], g.out[2], g.in[1], g.in[2]};
  const Attr attrs[] = {g.attr<Dims>(0), Dims{g.needs[0], g.needs[1], g.needs[2]}};
  const Outputs grads = run_op(kNativeLayerNormBackward, in, attrs);
  return {g.needs[0] ? grads[0] : Tensor(), g.needs[1] ? grads[1] : Tensor(),
          g.needs[2] ? grads[2] : Tensor()};
}

std::vector<Sample> layer_norm_samples() {
  const SampleInput absent{.sizes = {}, .undefined = true};
  return {{{{{3, 5}}, {{5}}, {{5}}}, {Dims{5}, 1e-5}},
          {{{{67, 33}}, {{33}}, absent}, {Dims{33}, 1e-5}},
          {{{{2, 3, 4}}, {{3, 4}}, {{3, 4}}}, {Dims{3, 4}, 1e-3}},
          {{{{7}}, absent, absent}, {Dims{7}, 1e-5}},
          {{{{4, 18}}, absent, {{18}}}, {Dims{18}, 1e-5}},
          {{{{0, 3}}, {{3}}, {{3}}}, {Dims{3}, 1e-5}}};
}

std::vector<Sample> layer_norm_backward_samples() {
  const SampleInput absent{.sizes = {}, .undefined = true};
  const auto stat = [](Dims sizes) { return SampleInput{sizes, 0.5, 1.5}; };
  return {
      {{{{3, 5}}, {{3, 5}}, stat({3, 1}), stat({3, 1}), {{5}}, {{5}}}, {Dims{5}, Dims{1, 1, 1}}},
      {{{{67, 33}}, {{67, 33}}, stat({67, 1}), stat({67, 1}), {{33}}, {{33}}},
       {Dims{33}, Dims{1, 1, 1}}},
      {{{{67, 33}}, {{67, 33}}, stat({67, 1}), stat({67, 1}), {{33}}, {{33}}},
       {Dims{33}, Dims{0, 1, 0}}},
      {{{{2, 3, 4}}, {{2, 3, 4}}, stat({2, 1, 1}), stat({2, 1, 1}), absent, absent},
       {Dims{3, 4}, Dims{1, 0, 0}}}};
}

// Flops per element. Forward: mean 1, variance 3, normalise 2, weight and bias 2.
constexpr double kLayerNormFlops = 8;
// Backward: h 2, g 1, the two means 3, dx 4, dweight and dbias 3.
constexpr double kLayerNormBackwardFlops = 13;

}  // namespace

constinit const OpDef kLayerNorm{
    .name = "aten::layer_norm",
    .schema =
        "(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
        "float eps=1e-05)",
    .doc = "(input - mean) / sqrt(var + eps) * weight + bias over the last dimensions",
    .kind = OpKind::composite,
    .compose =
        [](const Call& call) { return Outputs(run_op(kNativeLayerNorm, call.in, call.attrs)[0]); },
    .autocast = {AutocastRule::none, AutocastRule::f32},
    .reference = layer_norm_reference,
    .samples = layer_norm_samples};

constinit const OpDef kNativeLayerNorm{
    .name = "aten::native_layer_norm",
    .schema = "(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps)",
    .doc = "layer_norm with its mean and rstd",
    .infer = infer_layer_norm,
    .flops =
        [](const Call& call) { return kLayerNormFlops * static_cast<double>(call.in[0].numel()); },
    .vjp = layer_norm_vjp,
    .saves = save_input(0) | save_input(1) | save_input(2) | kSaveOutput,
    .autocast = {AutocastRule::none, AutocastRule::f32},
    .reference = layer_norm_reference,
    .samples = layer_norm_samples};

constinit const OpDef kNativeLayerNormBackward{
    .name = "aten::native_layer_norm_backward",
    .schema =
        "(Tensor grad_out, Tensor input, int[] normalized_shape, Tensor mean, Tensor rstd, "
        "Tensor? weight, Tensor? bias, bool[3] output_mask)",
    .doc = "gradients of native_layer_norm: input, weight, bias",
    .infer = infer_layer_norm_backward,
    .flops =
        [](const Call& call) {
          return kLayerNormBackwardFlops * static_cast<double>(call.in[1].numel());
        },
    .reference = layer_norm_backward_reference,
    .samples = layer_norm_backward_samples};

Tensor layer_norm(const Tensor& input, Dims normalized_shape, const Tensor& weight,
                  const Tensor& bias, double eps) {
  return run_op(kLayerNorm, {input, weight, bias}, {normalized_shape, eps});
}

}  // namespace epilogue
