// SPDX-License-Identifier: Apache-2.0
// nll_loss: -weight[target] * self[target] per row of log-probabilities, with its backward op.
#include "epilogue/ops.h"
#include "ops/losses/losses.h"
#include "ops/ops.h"
#include "ops/reference.h"
#include "ops/run_op.h"

namespace epilogue {
namespace {

// The total weight divides a mean: f32 counts further than bf16 does.
DType total_dtype(DType dtype) { return is_low_precision(dtype) ? DType::f32 : dtype; }

// aten::nll_loss_forward(self, target, weight; reduction, ignore_index) -> loss, total weight.
OutMetas infer_nll_loss(const Call& call) {
  const Tensor& self = call.in[0];
  require_class_targets(call.op, self, call.in[1], call.in[2]);
  const bool reduces = reduction_of(call, 0) != Reduction::none;
  return {{reduces ? Dims{} : call.in[1].sizes(), self.dtype()},
          {Dims{}, total_dtype(self.dtype())}};
}

// Calls body(row, class or kIgnored, weight of the class or 0).
template <class Body>
void for_each_target(const OpDef& op, const Tensor& self, const Tensor& target,
                     const Tensor& weight, int64_t ignore_index, Body&& body) {
  const int64_t classes = self.size(-1);
  for (int64_t i = 0; i < target.numel(); ++i) {
    const int64_t c = class_of(op, Elements(target).get_int(i), ignore_index, classes);
    const double w = c == kIgnored ? 0 : weight.defined() ? Elements(weight).get(c) : 1;
    body(i, c, w);
  }
}

void nll_loss_reference(const Call& call) {
  const Reduction reduction = reduction_of(call, 0);
  const Elements self(call.in[0]);
  const Elements out(call.out[0]);
  const int64_t classes = call.in[0].size(-1);
  double sum = 0;
  double total = 0;
  for_each_target(call.op, call.in[0], call.in[1], call.in[2], call.attr<int64_t>(1),
                  [&](int64_t i, int64_t c, double w) {
                    const double loss = c == kIgnored ? 0 : -w * self.get(i * classes + c);
                    if (reduction == Reduction::none) out.set(i, loss);
                    sum += loss;
                    total += w;
                  });
  if (reduction != Reduction::none) out.set(0, reduction == Reduction::mean ? sum / total : sum);
  if (call.out.size() == 2) Elements(call.out[1]).set(0, total);  // aten::nll_loss gives one
}

// aten::nll_loss_backward(grad_output, self, target, weight, total_weight; reduction,
// ignore_index).
OutMetas infer_nll_loss_backward(const Call& call) {
  const Tensor& self = call.in[1];
  require_class_targets(call.op, self, call.in[2], call.in[3]);
  const bool reduces = reduction_of(call, 0) != Reduction::none;
  const Dims expected = reduces ? Dims{} : call.in[2].sizes();
  require_floating(call.op, call.in[0]);
  if (!(call.in[0].sizes() == expected))
    fail(call.op, "a gradient of shape " + to_string(expected), to_string(call.in[0]));
  if (call.in[4].numel() != 1) fail(call.op, "one total weight", to_string(call.in[4]));
  return OutMeta{self.sizes(), self.dtype()};
}

// -weight[target] * grad_output at the target, 0 elsewhere; over the total weight for mean.
void nll_loss_backward_reference(const Call& call) {
  const Reduction reduction = reduction_of(call, 0);
  const Elements grad(call.in[0]);
  const Elements out(call.out[0]);
  const int64_t classes = call.in[1].size(-1);
  const double total = reduction == Reduction::mean ? Elements(call.in[4]).get(0) : 1;
  for (int64_t i = 0; i < call.out[0].numel(); ++i) out.set(i, 0);
  for_each_target(call.op, call.in[1], call.in[2], call.in[3], call.attr<int64_t>(1),
                  [&](int64_t i, int64_t c, double w) {
                    const double g = grad.get(reduction == Reduction::none ? i : 0);
                    if (c != kIgnored) out.set(i * classes + c, -w * g / total);
                  });
}

Gradients nll_loss_vjp(const GradCall& g) {
  if (g.needs[2])
    fail(kNllLossForward, "a class weight that requires no gradient", to_string(g.in[2]));
  const Attr attrs[] = {g.attr<int64_t>(0), g.attr<int64_t>(1)};
  const Tensor in[] = {g.dout, g.in[0], g.in[1], g.in[2], g.out[1]};
  return {run_op(kNllLossBackward, in, attrs)[0], Tensor(), Tensor()};
}

// Each target reads one element of self.
double forward_bytes(const Call& call) {
  const auto rows = static_cast<double>(call.in[1].numel());
  const auto element = static_cast<double>(dtype_bytes(call.in[0].dtype()));
  return rows * (8 + element) + static_cast<double>(call.out[0].bytes());
}
// Each target and gradient is read once, the result is written once; self is not read.
double backward_bytes(const Call& call) {
  return static_cast<double>(call.in[2].bytes() + call.in[0].bytes() + call.out[0].bytes());
}

std::vector<Sample> nll_loss_samples() {
  const SampleInput absent{.sizes = {}, .undefined = true};
  const auto target = [](Dims sizes, double classes) {
    return SampleInput{sizes, 0, classes, DType::i64};
  };
  return {{{{{6, 5}, -3, 0}, target({6}, 5), absent}, {int64_t{1}, int64_t{-100}}},
          {{{{67, 33}, -3, 0}, target({67}, 33), {{33}, 0.5, 2}}, {int64_t{1}, int64_t{3}}},
          {{{{9, 4}, -3, 0}, target({9}, 4), {{4}, 0.5, 2}}, {int64_t{0}, int64_t{1}}},
          {{{{9, 4}, -3, 0}, target({9}, 4), absent}, {int64_t{2}, int64_t{0}}},
          {{{{7}, -3, 0}, target({}, 7), absent}, {int64_t{1}, int64_t{-100}}}};
}

std::vector<Sample> nll_loss_backward_samples() {
  std::vector<Sample> samples = nll_loss_samples();
  for (Sample& s : samples) {
    const bool reduces = std::get<int64_t>(s.attrs[0]) != 0;
    s.in.insert(s.in.begin(), SampleInput{reduces ? Dims{} : s.in[1].sizes});
    s.in.push_back({{}, 3, 5});  // the total weight
  }
  return samples;
}

}  // namespace

void require_class_targets(const OpDef& op, const Tensor& self, const Tensor& target,
                           const Tensor& weight) {
  require_floating(op, self);
  const bool shapes_fit = (self.dim() == 1 || self.dim() == 2) && target.dim() == self.dim() - 1 &&
                          (self.dim() == 1 || target.sizes()[0] == self.sizes()[0]);
  if (!shapes_fit || target.dtype() != DType::i64)
    fail(op, "scores [n, classes] with i64 targets [n], or [classes] with one target",
         to_string(self) + " and " + to_string(target));
  if (!weight.defined()) return;
  require_floating(op, weight);
  if (!(weight.sizes() == Dims{self.size(-1)}))
    fail(op, "one weight per class, [" + std::to_string(self.size(-1)) + "]", to_string(weight));
}

constinit const OpDef kNllLoss{
    .name = "aten::nll_loss",
    .schema =
        "(Tensor self, Tensor target, Tensor? weight=None, int reduction=Mean, "
        "int ignore_index=-100)",
    .doc = "-weight[target] * self[target]: each, their weighted mean or their sum",
    .kind = OpKind::composite,
    .compose =
        [](const Call& call) { return Outputs(run_op(kNllLossForward, call.in, call.attrs)[0]); },
    .autocast = {AutocastRule::f32, AutocastRule::f32},
    .reference = nll_loss_reference,
    .samples = nll_loss_samples};

constinit const OpDef kNllLossForward{
    .name = "aten::nll_loss_forward",
    .schema = "(Tensor self, Tensor target, Tensor? weight, int reduction, int ignore_index)",
    .doc = "nll_loss with the sum of the targets' weights",
    .infer = infer_nll_loss,
    .flops = [](const Call& call) { return 2.0 * static_cast<double>(call.in[1].numel()); },
    .bytes = forward_bytes,
    .vjp = nll_loss_vjp,
    .saves = save_input(0) | save_input(1) | save_input(2) | kSaveOutput,
    .reference = nll_loss_reference,
    .samples = nll_loss_samples};

constinit const OpDef kNllLossBackward{
    .name = "aten::nll_loss_backward",
    .schema =
        "(Tensor grad_output, Tensor self, Tensor target, Tensor? weight, int reduction, "
        "int ignore_index, Tensor total_weight)",
    .doc = "-weight[target] * grad_output at the targets, over the total weight for mean",
    .infer = infer_nll_loss_backward,
    .flops = [](const Call& call) { return 2.0 * static_cast<double>(call.in[2].numel()); },
    .bytes = backward_bytes,
    // The op is linear in grad_output: its adjoint is the loss itself, with v in place of self.
    .vjp = [](const GradCall& g) -> Gradients {
      const bool is_mean = g.attr<int64_t>(0) == static_cast<int64_t>(Reduction::mean);
      const Reduction parts = g.in_meta[0].sizes.empty() && g.in_meta[2].sizes.rank() == 1
                                  ? Reduction::sum
                                  : Reduction::none;
      const Tensor d = nll_loss(g.dout, g.in[2], g.in[3], parts, g.attr<int64_t>(1));
      return {is_mean ? div(d, g.in[4]) : d, Tensor(), Tensor(), Tensor(), Tensor()};
    },
    .saves = save_input(2) | save_input(3) | save_input(4),
    .reference = nll_loss_backward_reference,
    .samples = nll_loss_backward_samples};

Tensor nll_loss(const Tensor& self, const Tensor& target, const Tensor& weight, Reduction reduction,
                int64_t ignore_index) {
  return run_op(kNllLoss, {self, target, weight}, {reduction_attr(reduction), ignore_index});
}

}  // namespace epilogue
