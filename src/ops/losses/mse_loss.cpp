// SPDX-License-Identifier: Apache-2.0
// mse_loss: (self - target)^2, with its backward op.
#include "epilogue/ops.h"
#include "ops/losses/losses.h"
#include "ops/ops.h"
#include "ops/reference.h"
#include "ops/run_op.h"

namespace epilogue {
namespace {

DType loss_dtype(const Call& call, std::span<const Tensor> in) {
  const DType dtype = result_dtype(in);
  if (!is_floating(dtype))
    fail(call.op, "a floating tensor", to_string(in[0]) + " and " + to_string(in[1]));
  return dtype;
}

OutMetas infer_mse_loss(const Call& call) {
  require_target_shape(call.op, call.in[0], call.in[1]);
  const Dims& sizes = call.in[0].sizes();
  const bool reduces = reduction_of(call, 0) != Reduction::none;
  return OutMeta{reduces ? Dims{} : sizes, loss_dtype(call, call.in)};
}

void mse_loss_reference(const Call& call) {
  const Reduction reduction = reduction_of(call, 0);
  const Dims sizes = broadcast_sizes(call.op, call.in[0].sizes(), call.in[1].sizes());
  const Elements self(call.in[0], sizes);
  const Elements target(call.in[1], sizes);
  const Elements out(call.out[0]);
  const int64_t n = element_count(sizes);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double d = self.get(i) - target.get(i);
    if (reduction == Reduction::none) out.set(i, d * d);
    sum += d * d;
  }
  if (reduction == Reduction::none) return;
  out.set(0, reduction == Reduction::mean ? sum / static_cast<double>(n) : sum);
}

// aten::mse_loss_backward(grad_output, self, target; reduction).
OutMetas infer_mse_loss_backward(const Call& call) {
  const Dims sizes = broadcast_sizes(call.op, call.in[1].sizes(), call.in[2].sizes());
  const bool reduces = reduction_of(call, 0) != Reduction::none;
  if (!(call.in[0].sizes() == (reduces ? Dims{} : sizes)))
    fail(call.op, "a gradient of shape " + to_string(reduces ? Dims{} : sizes),
         to_string(call.in[0]));
  return OutMeta{sizes, loss_dtype(call, call.in.subspan(1))};
}

// 2 (self - target) * grad_output, over the number of elements for mean.
void mse_loss_backward_reference(const Call& call) {
  const Dims& sizes = call.out[0].sizes();
  const Elements grad(call.in[0], sizes);
  const Elements self(call.in[1], sizes);
  const Elements target(call.in[2], sizes);
  const Elements out(call.out[0]);
  const auto n = static_cast<double>(call.out[0].numel());
  const double factor = reduction_of(call, 0) == Reduction::mean ? 2 / n : 2;
  for (int64_t i = 0; i < call.out[0].numel(); ++i)
    out.set(i, factor * (self.get(i) - target.get(i)) * grad.get(i));
}

double broadcast_count(const Call& call) {
  return static_cast<double>(
      element_count(broadcast_sizes(call.op, call.in[0].sizes(), call.in[1].sizes())));
}

std::vector<Sample> mse_loss_samples() {
  return {{{{{3, 5}}, {{3, 5}}}, {int64_t{1}}},   {{{{67, 133}}, {{67, 133}}}, {int64_t{2}}},
          {{{{33, 7}}, {{33, 7}}}, {int64_t{0}}}, {{{{2, 3, 4}}, {{2, 3, 4}}}, {int64_t{0}}},
          {{{{}}, {{}}}, {int64_t{1}}},           {{{{0, 3}}, {{0, 3}}}, {int64_t{2}}}};
}
std::vector<Sample> mse_loss_backward_samples() {
  return {{{{{}}, {{3, 5}}, {{3, 5}}}, {int64_t{1}}},
          {{{{}}, {{67, 133}}, {{67, 133}}}, {int64_t{2}}},
          {{{{33, 7}}, {{33, 7}}, {{33, 7}}}, {int64_t{0}}},
          {{{{}}, {{4, 1}}, {{3}}}, {int64_t{1}}}};
}

}  // namespace

constinit const OpDef kMseLoss{
    .name = "aten::mse_loss",
    .schema = "(Tensor self, Tensor target, int reduction=Mean)",
    .doc = "(self - target)^2: each, their mean or their sum",
    .infer = infer_mse_loss,
    .flops = [](const Call& call) { return 3 * broadcast_count(call); },
    .vjp = [](const GradCall& g) -> Gradients {
      const Tensor d = run_op(kMseLossBackward, {g.dout, g.in[0], g.in[1]}, {g.attr<int64_t>(0)});
      return {d, g.needs[1] ? neg(d) : Tensor()};
    },
    .saves = save_input(0) | save_input(1),
    .autocast = {AutocastRule::f32, AutocastRule::f32},
    .reference = mse_loss_reference,
    .samples = mse_loss_samples};

constinit const OpDef kMseLossBackward{
    .name = "aten::mse_loss_backward",
    .schema = "(Tensor grad_output, Tensor self, Tensor target, int reduction)",
    .doc = "2 (self - target) * grad_output, over the number of elements for mean",
    .infer = infer_mse_loss_backward,
    .flops = flops_per_element<3>,
    // dgrad = 2 c (self - target) v, dself = 2 c grad v, dtarget = -dself.
    .vjp = [](const GradCall& g) -> Gradients {
      const bool is_mean = g.attr<int64_t>(0) == static_cast<int64_t>(Reduction::mean);
      const double factor = is_mean ? 2 / static_cast<double>(g.dout.numel()) : 2;
      const Tensor v = mul(g.dout, factor);
      const Tensor d = mul(v, g.in[0]);
      return {mul(v, sub(g.in[1], g.in[2])), d, g.needs[2] ? neg(d) : Tensor()};
    },
    .saves = save_input(0) | save_input(1) | save_input(2),
    .reference = mse_loss_backward_reference,
    .samples = mse_loss_backward_samples};

Tensor mse_loss(const Tensor& self, const Tensor& target, Reduction reduction) {
  return run_op(kMseLoss, {self, target}, {reduction_attr(reduction)});
}

}  // namespace epilogue
