// SPDX-License-Identifier: Apache-2.0
// Cross entropy of class targets as one op, and its backward op: log_softmax and nll_loss in one
// pass over the logits each way. Not ops of ATen's; named as its nll_loss_forward and _backward.
#include "ops/losses/cross_entropy_loss.h"

#include <cmath>

#include "core/tensor_impl.h"
#include "epilogue/ops.h"
#include "ops/ops.h"
#include "ops/reference.h"
#include "ops/run_op.h"

namespace epilogue {
namespace {

// Sums and statistics: 16-bit types would lose them.
DType wide_dtype(DType dtype) { return is_low_precision(dtype) ? DType::f32 : dtype; }

void require_smoothing(const Call& call) {
  const auto e = call.attr<double>(2);
  if (!(e >= 0 && e <= 1)) fail(call.op, "a label_smoothing in [0, 1]", std::to_string(e));
}

// Inputs self, target, weight; attributes reduction, ignore_index, label_smoothing. Results: the
// loss; per row max and log(sum of e^(x - max)); the weight that a mean divides by.
OutMetas infer_cross_entropy_loss(const Call& call) {
  const Tensor& self = call.in[0];
  require_class_targets(call.op, self, call.in[1], call.in[2]);
  require_smoothing(call);
  const bool reduces = reduction_of(call, 0) != Reduction::none;
  const DType wide = wide_dtype(self.dtype());
  return {{reduces ? Dims{} : call.in[1].sizes(), self.dtype()},
          {Dims{call.in[1].numel(), 2}, wide},
          {Dims{}, wide}};
}

// Elements of row i begin at i * classes.
void cross_entropy_loss_reference(const Call& call) {
  const Elements self(call.in[0]);
  const Elements out(call.out[0]);
  const Elements stats(call.out[1]);
  const CrossEntropyRows rows(call, call.in[0], call.in[1], call.in[2]);
  double sum = 0;
  double total = 0;
  for (int64_t i = 0; i < call.in[1].numel(); ++i) {
    const int64_t first = i * rows.classes;
    double max = -INFINITY;
    for (int64_t c = 0; c < rows.classes; ++c) {
      const double z = self.get(first + c);
      max = std::isnan(z) || std::isnan(max) ? NAN : std::max(max, z);
    }
    double exp_sum = 0;
    for (int64_t c = 0; c < rows.classes; ++c) exp_sum += std::exp(self.get(first + c) - max);
    const double log_sum = std::log(exp_sum);
    stats.set(2 * i, max);
    stats.set(2 * i + 1, log_sum);
    const auto log_p = [&](int64_t c) { return self.get(first + c) - max - log_sum; };
    const int64_t t = rows.class_at(i);
    double loss = 0;
    if (t != kIgnored) {
      if (rows.kept != 0) loss = -rows.kept * rows.weight_of(t) * log_p(t);
      for (int64_t c = 0; rows.spread != 0 && c < rows.classes; ++c)
        loss -= rows.spread * rows.weight_of(c) * log_p(c);
      total += rows.weight_of(t);
    }
    if (rows.reduction == Reduction::none) out.set(i, loss);
    sum += loss;
  }
  if (rows.reduction != Reduction::none)
    out.set(0, rows.reduction == Reduction::mean ? sum / total : sum);
  Elements(call.out[2]).set(0, total);
}

// Inputs grad_output, self, target, weight, stats, total_weight; the same attributes.
OutMetas infer_cross_entropy_loss_backward(const Call& call) {
  const Tensor& self = call.in[1];
  require_class_targets(call.op, self, call.in[2], call.in[3]);
  require_smoothing(call);
  require_floating(call.op, call.in[0]);
  const bool reduces = reduction_of(call, 0) != Reduction::none;
  const Dims expected = reduces ? Dims{} : call.in[2].sizes();
  if (!(call.in[0].sizes() == expected))
    fail(call.op, "a gradient of shape " + to_string(expected), to_string(call.in[0]));
  const Dims stats = {call.in[2].numel(), 2};
  if (!(call.in[4].sizes() == stats) || !is_floating(call.in[4].dtype()))
    fail(call.op, "statistics of shape " + to_string(stats), to_string(call.in[4]));
  if (call.in[5].numel() != 1) fail(call.op, "one total weight", to_string(call.in[5]));
  return OutMeta{self.sizes(), self.dtype()};
}

void cross_entropy_loss_backward_reference(const Call& call) {
  const Elements grad(call.in[0]);
  const Elements self(call.in[1]);
  const Elements stats(call.in[4]);
  const Elements out(call.out[0]);
  const CrossEntropyRows rows(call, call.in[1], call.in[2], call.in[3]);
  const double total = rows.reduction == Reduction::mean ? Elements(call.in[5]).get(0) : 1;
  for (int64_t i = 0; i < call.in[2].numel(); ++i) {
    const int64_t first = i * rows.classes;
    const int64_t t = rows.class_at(i);
    for (int64_t c = 0; t == kIgnored && c < rows.classes; ++c) out.set(first + c, 0);
    if (t == kIgnored) continue;
    const double g = grad.get(rows.reduction == Reduction::none ? i : 0) / total;
    const double main = rows.kept * rows.weight_of(t);
    for (int64_t c = 0; c < rows.classes; ++c) {
      const double p = std::exp(self.get(first + c) - stats.get(2 * i) - stats.get(2 * i + 1));
      const double q = (c == t ? main : 0) + rows.spread * rows.weight_of(c);
      out.set(first + c, g * ((main + rows.spread * rows.weight_sum) * p - q));
    }
  }
}

Gradients cross_entropy_loss_vjp(const GradCall& g) {
  if (g.needs[2])
    fail(kCrossEntropyForward, "a class weight that requires no gradient", to_string(g.in[2]));
  const Attr attrs[] = {g.attr<int64_t>(0), g.attr<int64_t>(1), g.attr<double>(2)};
  // The rows' statistics are constants here: how they depend on the logits is in the formula.
  const auto constant = [](const Tensor& t) {
    return detail::make_view(t, t.sizes(), t.strides());
  };
  const Tensor in[] = {g.dout, g.in[0], g.in[1], g.in[2], constant(g.out[1]), constant(g.out[2])};
  return {run_op(kCrossEntropyBackward, in, attrs)[0], Tensor(), Tensor()};
}

// dz = s (a p - q) with s the gradient's share of the row. For a cotangent v: the gradient's is
// sum(v (a p - q)), the op itself at gradient 1; the logits' is a s p (v - sum(v p)).
Gradients backward_vjp(const GradCall& g) {
  const Tensor& self = g.in[1];
  const Tensor& target = g.in[2];
  const Attr attrs[] = {g.attr<int64_t>(0), g.attr<int64_t>(1), g.attr<double>(2)};
  const auto reduction = static_cast<Reduction>(g.attr<int64_t>(0));
  const auto smoothing = g.attr<double>(2);
  const double spread = smoothing / static_cast<double>(self.size(-1));
  const Tensor one = expand(full({}, 1, g.in[0].dtype(), self.device()), g.in[0].sizes());
  const Tensor in[] = {one, self, target, g.in[3], g.in[4], g.in[5]};
  const Tensor rows = sum(mul(g.dout, run_op(kCrossEntropyBackward, in, attrs)[0]), {-1});
  const Tensor d_grad = reduction == Reduction::none ? rows : sum(rows);

  // Given constant -1, nll_loss gives the weights of the targets, 0 where ignored.
  const Tensor minus =
      expand(full(Dims::filled(self.dim(), 1), -1, self.dtype(), self.device()), self.sizes());
  const int64_t ignore = g.attr<int64_t>(1);
  const Tensor main = nll_loss(minus, target, g.in[3], Reduction::none, ignore);
  const Tensor kept = nll_loss(minus, target, {}, Reduction::none, ignore);
  const Tensor weights =
      g.in[3].defined() ? sum(g.in[3])
                        : full({}, static_cast<double>(self.size(-1)), self.dtype(), self.device());
  Tensor scale = add(mul(main, 1 - smoothing), mul(kept, mul(weights, spread)));
  scale = mul(scale, g.in[0]);
  if (reduction == Reduction::mean) scale = div(scale, g.in[5]);
  Dims column = scale.sizes();
  column.push_back(1);
  const Tensor p = softmax(self, -1);
  const Tensor inner = sum(mul(g.dout, p), {-1}, true);
  const Tensor d_self = mul(mul(view(scale, column), p), sub(g.dout, inner));
  return {d_grad, d_self, Tensor(), Tensor(), Tensor(), Tensor()};
}

// Per logit: subtract, exponential (about 10), add; backward a multiplication and a subtraction
// more.
constexpr double kFlopsPerLogit = 12;

std::vector<Sample> cross_entropy_loss_samples() {
  const SampleInput absent{.sizes = {}, .undefined = true};
  const auto target = [](Dims sizes, double classes) {
    return SampleInput{sizes, 0, classes, DType::i64};
  };
  const int64_t off = -100;
  return {{{{{6, 5}}, target({6}, 5), absent}, {int64_t{1}, off, 0.0}},
          {{{{6, 5}}, target({6}, 5), {{5}, 0.5, 2}}, {int64_t{1}, int64_t{2}, 0.1}},
          {{{{67, 33}}, target({67}, 33), absent}, {int64_t{2}, int64_t{3}, 0.1}},
          {{{{9, 4}}, target({9}, 4), {{4}, 0.5, 2}}, {int64_t{0}, int64_t{1}, 0.3}},
          {{{{67, 33}}, target({67}, 33), {{33}, 0.5, 2}}, {int64_t{0}, off, 1.0}},
          {{{{7}}, target({}, 7), absent}, {int64_t{1}, off, 0.0}}};
}

std::vector<Sample> cross_entropy_loss_backward_samples() {
  std::vector<Sample> samples = cross_entropy_loss_samples();
  for (Sample& s : samples) {
    const bool reduces = std::get<int64_t>(s.attrs[0]) != 0;
    const int64_t rows = s.in[1].sizes.empty() ? 1 : s.in[1].sizes[0];
    s.in.insert(s.in.begin(), SampleInput{reduces ? Dims{} : s.in[1].sizes});
    s.in.push_back({{rows, 2}, 2, 3});  // above every logit: probabilities below 1
    s.in.push_back({{}, 3, 5});         // the total weight
  }
  return samples;
}

}  // namespace

constinit const OpDef kCrossEntropyForward{
    .name = "aten::cross_entropy_loss_forward",
    .schema =
        "(Tensor self, Tensor target, Tensor? weight, int reduction, int ignore_index, "
        "float label_smoothing)",
    .doc =
        "cross entropy of class targets, with the rows' softmax statistics and the mean's weight",
    .infer = infer_cross_entropy_loss,
    .flops =
        [](const Call& call) { return kFlopsPerLogit * static_cast<double>(call.in[0].numel()); },
    .vjp = cross_entropy_loss_vjp,
    .saves = save_input(0) | save_input(1) | save_input(2) | kSaveOutput,
    .reference = cross_entropy_loss_reference,
    .samples = cross_entropy_loss_samples};

constinit const OpDef kCrossEntropyBackward{
    .name = "aten::cross_entropy_loss_backward",
    .schema =
        "(Tensor grad_output, Tensor self, Tensor target, Tensor? weight, Tensor stats, "
        "Tensor total_weight, int reduction, int ignore_index, float label_smoothing)",
    .doc = "grad_output (softmax(self) - onehot(target)), weighted and smoothed",
    .infer = infer_cross_entropy_loss_backward,
    .flops =
        [](const Call& call) {
          return (kFlopsPerLogit + 2) * static_cast<double>(call.in[1].numel());
        },
    .vjp = backward_vjp,
    .saves = save_input(0) | save_input(1) | save_input(2) | save_input(3) | save_input(4) |
             save_input(5),
    .reference = cross_entropy_loss_backward_reference,
    .samples = cross_entropy_loss_backward_samples};

}  // namespace epilogue
