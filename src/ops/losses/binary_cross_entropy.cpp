// SPDX-License-Identifier: Apache-2.0
// binary_cross_entropy of probabilities, one op, and of logits, made of pointwise ops.
#include "ops/losses/binary_cross_entropy.h"

#include <cmath>

#include "epilogue/ops.h"
#include "ops/losses/losses.h"
#include "ops/ops.h"
#include "ops/reference.h"
#include "ops/run_op.h"

namespace epilogue {
namespace {

void require_bce_arguments(const Call& call) {
  const Tensor& self = call.in[0];
  require_target_shape(call.op, self, call.in[1]);
  for (const Tensor& t : call.in) {
    if (!t.defined()) continue;
    require_floating(call.op, t);
    if (!(broadcast_sizes(call.op, self.sizes(), t.sizes()) == self.sizes()))
      fail(call.op, "weights that broadcast to " + to_string(self.sizes()), to_string(t));
  }
}

OutMetas infer(const Call& call) {
  require_bce_arguments(call);
  const bool reduces = reduction_of(call, 0) != Reduction::none;
  return OutMeta{reduces ? Dims{} : call.in[0].sizes(), call.in[0].dtype()};
}

void probability_reference(const Call& call) {
  const Elements self(call.in[0]);
  const Elements target(call.in[1]);
  reduce_reference(call, call.in[0].numel(), [&](int64_t i) {
    const double loss = probability_loss(require_probability(call.op, self.get(i)), target.get(i));
    return call.in[2].defined() ? loss * Elements(call.in[2], call.in[0].sizes()).get(i) : loss;
  });
}

// (x - t) / max(x (1 - x), 1e-12), as PyTorch's: finite at 0 and 1.
Gradients probability_gradient(const GradCall& g) {
  const Tensor& x = g.in[0];
  const Tensor& t = g.in[1];
  const auto reduction = static_cast<Reduction>(g.attr<int64_t>(0));
  Tensor d = g.dout;
  if (reduction == Reduction::mean) d = div(d, static_cast<double>(x.numel()));
  Tensor dw;
  if (g.needs[2]) {
    const int64_t none = static_cast<int64_t>(Reduction::none);
    dw = mul(d, run_op(kBinaryCrossEntropy, {x, t, Tensor()}, {none}));
  }
  if (g.in[2].defined()) d = mul(d, g.in[2]);
  const Tensor rest = 1.0 - x;
  Tensor dx;
  Tensor dt;
  if (g.needs[0]) dx = mul(d, div(sub(x, t), clamp(mul(x, rest), kLeastVariance)));
  if (g.needs[1]) dt = mul(d, sub(log(rest), log(x)));
  return {dx, dt, dw};
}

// (1 - t) x + l softplus(-x) with l = 1 + (pos_weight - 1) t: nothing overflows.
Outputs compose_logits(const Call& call) {
  require_bce_arguments(call);
  const Tensor& x = call.in[0];
  const Tensor& t = call.in[1];
  const Tensor& weight = call.in[2];
  const Tensor& pos_weight = call.in[3];
  // Beyond the threshold softplus is the identity, to the last bit of f64.
  Tensor tail = softplus(neg(x), 1, 40);
  if (pos_weight.defined()) tail = mul(add(mul(sub(pos_weight, 1), t), 1), tail);
  Tensor loss = add(mul(1 - t, x), tail);
  if (weight.defined()) loss = mul(loss, weight);
  return reduced(loss, reduction_of(call, 0));
}

void logits_reference(const Call& call) {
  const Dims& sizes = call.in[0].sizes();
  const auto at = [&](size_t input, int64_t i) {
    return call.in[input].defined() ? Elements(call.in[input], sizes).get(i) : 1;
  };
  reduce_reference(call, call.in[0].numel(), [&](int64_t i) {
    const double x = at(0, i);
    const double t = at(1, i);
    const double tail = std::fmax(-x, 0) + std::log1p(std::exp(-std::abs(x)));
    return at(2, i) * ((1 - t) * x + (1 + (at(3, i) - 1) * t) * tail);
  });
}

const SampleInput kAbsent{.sizes = {}, .undefined = true};
SampleInput probabilities(Dims sizes) { return {sizes, 0.05, 0.95}; }

std::vector<Sample> probability_samples() {
  const int64_t none = 0;
  const int64_t mean = 1;
  const int64_t sum = 2;
  const auto p = probabilities;
  return {{{p({3, 5}), p({3, 5}), kAbsent}, {mean}},
          {{p({67, 33}), p({67, 33}), kAbsent}, {sum}},
          {{p({33, 7}), p({33, 7}), kAbsent}, {none}},
          {{p({4, 3}), p({4, 3}), {{3}, 0.5, 2, DType::f64}}, {mean}},
          {{p({4, 3}), p({4, 3}), {{4, 3}, 0.5, 2, DType::f32}}, {none}},
          {{p({}), p({}), kAbsent}, {mean}},
          {{p({0, 3}), p({0, 3}), kAbsent}, {sum}}};
}
std::vector<Sample> logits_samples() {
  const int64_t none = 0;
  const int64_t mean = 1;
  const int64_t sum = 2;
  const auto t = probabilities;
  return {{{{{3, 5}, -4, 4}, t({3, 5}), kAbsent, kAbsent}, {mean}},
          {{{{67, 33}, -90, 90}, t({67, 33}), kAbsent, kAbsent}, {sum}},
          {{{{33, 7}}, t({33, 7}), kAbsent, {{7}, 0.5, 2}}, {none}},
          {{{{4, 3}}, t({4, 3}), {{3}, 0.5, 2}, {{3}, 0.5, 2}}, {mean}},
          {{{{}}, t({}), kAbsent, kAbsent}, {mean}},
          {{{{0, 3}}, t({0, 3}), kAbsent, kAbsent}, {sum}}};
}

}  // namespace

constinit const OpDef kBinaryCrossEntropy{
    .name = "aten::binary_cross_entropy",
    .schema = "(Tensor self, Tensor target, Tensor? weight=None, int reduction=Mean)",
    .doc = "-weight (t log(x) + (1 - t) log(1 - x)), logarithms at least -100",
    .infer = infer,
    .flops = [](const Call& call) { return 24 * static_cast<double>(call.in[0].numel()); },
    .vjp = probability_gradient,
    .saves = save_input(0) | save_input(1) | save_input(2),
    .autocast = {AutocastRule::f32, AutocastRule::f32},
    .reference = probability_reference,
    .samples = probability_samples};

constinit const OpDef kBinaryCrossEntropyWithLogits{
    .name = "aten::binary_cross_entropy_with_logits",
    .schema =
        "(Tensor self, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, "
        "int reduction=Mean)",
    .doc =
        "binary_cross_entropy(sigmoid(self)) without its overflow, pos_weight times its first part",
    .kind = OpKind::composite,
    .compose = compose_logits,
    .autocast = {AutocastRule::f32, AutocastRule::f32},
    .reference = logits_reference,
    .samples = logits_samples};

Tensor binary_cross_entropy(const Tensor& self, const Tensor& target, const Tensor& weight,
                            Reduction reduction) {
  return run_op(kBinaryCrossEntropy, args(self, target, weight), {reduction_attr(reduction)});
}
Tensor binary_cross_entropy_with_logits(const Tensor& self, const Tensor& target,
                                        const Tensor& weight, const Tensor& pos_weight,
                                        Reduction reduction) {
  return run_op(kBinaryCrossEntropyWithLogits, args(self, target, weight, pos_weight),
                {reduction_attr(reduction)});
}

}  // namespace epilogue
