// SPDX-License-Identifier: Apache-2.0
// softmax and log_softmax along one dimension, with their backward ops.
#include <algorithm>
#include <cmath>
#include <limits>

#include "epilogue/ops.h"
#include "ops/ops.h"
#include "ops/reductions/lines.h"
#include "ops/reference.h"
#include "ops/run_op.h"

namespace epilogue {
namespace {

// Attributes of aten::_softmax: dim, half_to_float (16-bit input, f32 result).
OutMetas infer_softmax(const Call& call) {
  const Tensor& self = call.in[0];
  require_floating(call.op, self);
  named_dim(call, self.dim());
  const bool widen = call.attr<bool>(1) && is_low_precision(self.dtype());
  return OutMeta{self.sizes(), widen ? DType::f32 : self.dtype()};
}

// Inputs of the backward ops: grad_output, output. Attributes: dim, input_dtype (absent: the
// output's).
OutMetas infer_softmax_backward(const Call& call) {
  require_floating(call.op, call.in[1]);
  require_same_dtype(call.op, call.in[0], call.in[1]);
  if (!(call.in[0].sizes() == call.in[1].sizes()))
    fail(call.op, "a gradient of the output's shape",
         to_string(call.in[0]) + " and " + to_string(call.in[1]));
  named_dim(call, call.in[0].dim());
  return OutMeta{call.in[1].sizes(), call.has_attr(1) ? call.attr<DType>(1) : call.in[1].dtype()};
}

// softmax: exp(x - max) / sum(exp(x - max)); log_softmax: x - max - log(sum(exp(x - max))).
template <bool kLog>
void softmax_reference(const Call& call) {
  const Elements in(call.in[0]);
  const Elements out(call.out[0]);
  const Lines lines(call.out[0].sizes(), named_dim(call, call.out[0].dim()));
  for (int64_t l = 0; l < lines.count; ++l) {
    const int64_t first = lines.first(l);
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t j = 0; j < lines.n; ++j) {
      const double x = in.get(first + j * lines.step);
      largest = std::isnan(x) ? x : std::max(largest, x);
    }
    double sum = 0;
    for (int64_t j = 0; j < lines.n; ++j) sum += std::exp(in.get(first + j * lines.step) - largest);
    for (int64_t j = 0; j < lines.n; ++j) {
      const double shifted = in.get(first + j * lines.step) - largest;
      out.set(first + j * lines.step, kLog ? shifted - std::log(sum) : std::exp(shifted) / sum);
    }
  }
}

// softmax: y * (g - sum(g * y)); log_softmax: g - exp(y) * sum(g).
template <bool kLog>
void softmax_backward_reference(const Call& call) {
  const Elements grad(call.in[0]);
  const Elements output(call.in[1]);
  const Elements out(call.out[0]);
  const Lines lines(call.out[0].sizes(), named_dim(call, call.out[0].dim()));
  for (int64_t l = 0; l < lines.count; ++l) {
    const int64_t first = lines.first(l);
    double sum = 0;
    for (int64_t j = 0; j < lines.n; ++j) {
      const int64_t i = first + j * lines.step;
      sum += kLog ? grad.get(i) : grad.get(i) * output.get(i);
    }
    for (int64_t j = 0; j < lines.n; ++j) {
      const int64_t i = first + j * lines.step;
      const double g = grad.get(i);
      const double y = output.get(i);
      out.set(i, kLog ? g - std::exp(y) * sum : y * (g - sum));
    }
  }
}

Outputs compose_softmax(const Call& call, const OpDef& unit) {
  const Tensor self = call.has_attr(1) ? to(call.in[0], call.attr<DType>(1)) : call.in[0];
  return run_op(unit, {self}, {call.attr<int64_t>(0), false});
}

Gradients call_backward(const GradCall& g, const OpDef& backward) {
  return {run_op(backward, {g.dout, g.out[0]}, {g.attr<int64_t>(0), g.in_meta[0].dtype})};
}

std::vector<Sample> samples_with(const Attr& second, size_t inputs) {
  std::vector<Sample> samples;
  for (const auto& [sizes, dim] : std::initializer_list<std::pair<Dims, int64_t>>{
           {{3, 5}, -1}, {{67, 33}, 1}, {{5, 37}, 0}, {{3, 4, 5}, 1}, {{7, 1}, -1}, {{}, 0}}) {
    Sample s{{}, {dim, second}};
    for (size_t i = 0; i < inputs; ++i) s.in.push_back({sizes});
    samples.push_back(s);
  }
  return samples;
}
std::vector<Sample> composite_samples() {
  std::vector<Sample> samples = samples_with(Attr(), 1);
  samples.push_back({{{{4, 9}}}, {int64_t{1}, DType::f64}});
  samples.push_back({{{{0, 4}}}, {int64_t{0}, Attr()}});
  return samples;
}
std::vector<Sample> unit_samples() { return samples_with(false, 1); }
std::vector<Sample> softmax_backward_samples() { return samples_with(Attr(), 2); }

// Flops per element. Forward: compare, subtract, exp, add, and a division (or a subtraction).
constexpr int kSoftmaxFlops = 5;
// Backward: multiply (or exp), add, subtract, multiply.
constexpr int kSoftmaxBackwardFlops = 4;

}  // namespace

constinit const OpDef kSoftmax{
    .name = "aten::softmax",
    .schema = "(Tensor self, int dim, ScalarType? dtype=None)",
    .doc = "softmax after an optional conversion",
    .kind = OpKind::composite,
    .compose = [](const Call& call) { return compose_softmax(call, kSoftmaxUnit); },
    .autocast = {AutocastRule::none, AutocastRule::f32_result},
    .autocast_attr = 1,
    .reference = softmax_reference<false>,
    .samples = composite_samples};

constinit const OpDef kSoftmaxUnit{
    .name = "aten::_softmax",
    .schema = "(Tensor self, int dim, bool half_to_float)",
    .doc = "exp(self - max) / sum(exp(self - max)) along dim",
    .infer = infer_softmax,
    .flops = flops_per_element<kSoftmaxFlops>,
    .vjp = [](const GradCall& g) { return call_backward(g, kSoftmaxBackward); },
    .saves = kSaveOutput,
    .reference = softmax_reference<false>,
    .samples = unit_samples};

constinit const OpDef kSoftmaxBackward{
    .name = "aten::_softmax_backward_data",
    .schema = "(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype)",
    .doc = "output * (grad_output - sum(grad_output * output))",
    .infer = infer_softmax_backward,
    .flops = flops_per_element<kSoftmaxBackwardFlops>,
    // With s = sum(g y): dg = y (v - sum(v y)); dy = v (g - s) - g sum(v y).
    .vjp = [](const GradCall& g) -> Gradients {
      const auto dim = g.attr<int64_t>(0);
      const Tensor v = to(g.dout, g.in_meta[1].dtype);
      const Tensor& y = g.in[1];
      const Tensor vy = sum(mul(v, y), {dim}, true);
      const Tensor gy = sum(mul(g.in[0], y), {dim}, true);
      return {mul(y, sub(v, vy)), sub(mul(v, sub(g.in[0], gy)), mul(g.in[0], vy))};
    },
    .saves = save_input(0) | save_input(1),
    .reference = softmax_backward_reference<false>,
    .samples = softmax_backward_samples};

constinit const OpDef kLogSoftmax{
    .name = "aten::log_softmax",
    .schema = "(Tensor self, int dim, ScalarType? dtype=None)",
    .doc = "log_softmax after an optional conversion",
    .kind = OpKind::composite,
    .compose = [](const Call& call) { return compose_softmax(call, kLogSoftmaxUnit); },
    .autocast = {AutocastRule::none, AutocastRule::f32_result},
    .autocast_attr = 1,
    .reference = softmax_reference<true>,
    .samples = composite_samples};

constinit const OpDef kLogSoftmaxUnit{
    .name = "aten::_log_softmax",
    .schema = "(Tensor self, int dim, bool half_to_float)",
    .doc = "self - max - log(sum(exp(self - max))) along dim",
    .infer = infer_softmax,
    .flops = flops_per_element<kSoftmaxFlops>,
    .vjp = [](const GradCall& g) { return call_backward(g, kLogSoftmaxBackward); },
    .saves = kSaveOutput,
    .reference = softmax_reference<true>,
    .samples = unit_samples};

constinit const OpDef kLogSoftmaxBackward{
    .name = "aten::_log_softmax_backward_data",
    .schema = "(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype)",
    .doc = "grad_output - exp(output) * sum(grad_output)",
    .infer = infer_softmax_backward,
    .flops = flops_per_element<kSoftmaxBackwardFlops>,
    // dg = v - sum(exp(y) v); dy = -exp(y) sum(g) v.
    .vjp = [](const GradCall& g) -> Gradients {
      const auto dim = g.attr<int64_t>(0);
      const Tensor v = to(g.dout, g.in_meta[1].dtype);
      const Tensor pv = mul(exp(g.in[1]), v);
      return {sub(v, sum(pv, {dim}, true)), neg(mul(pv, sum(g.in[0], {dim}, true)))};
    },
    .saves = save_input(0) | save_input(1),
    .reference = softmax_backward_reference<true>,
    .samples = softmax_backward_samples};

Tensor softmax(const Tensor& self, int64_t dim, std::optional<DType> dtype) {
  return run_op(kSoftmax, args(self), {dim, dtype ? Attr(*dtype) : Attr()});
}
Tensor log_softmax(const Tensor& self, int64_t dim, std::optional<DType> dtype) {
  return run_op(kLogSoftmax, args(self), {dim, dtype ? Attr(*dtype) : Attr()});
}

}  // namespace epilogue
