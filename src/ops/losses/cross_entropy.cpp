// SPDX-License-Identifier: Apache-2.0
// cross_entropy_loss: one op for class targets; probability targets are composed.
#include <cmath>
#include <vector>

#include "epilogue/ops.h"
#include "ops/losses/losses.h"
#include "ops/ops.h"
#include "ops/reference.h"
#include "ops/run_op.h"

namespace epilogue {
namespace {

// Inputs self, target, weight; attributes reduction, ignore_index, label_smoothing.
struct Arguments {
  Reduction reduction;
  int64_t ignore_index;
  double smoothing;
  bool is_probabilities;  // target holds a probability for each class
  int64_t classes;
};

Arguments arguments_of(const Call& call) {
  const Tensor& self = call.in[0];
  const Tensor& target = call.in[1];
  const bool is_probabilities = self.sizes() == target.sizes() && is_floating(target.dtype()) &&
                                (self.dim() == 1 || self.dim() == 2);
  if (!is_probabilities) require_class_targets(call.op, self, target, call.in[2]);
  const Arguments a{reduction_of(call, 0), call.attr<int64_t>(1), call.attr<double>(2),
                    is_probabilities, self.size(-1)};
  if (!(a.smoothing >= 0 && a.smoothing <= 1))
    fail(call.op, "a label_smoothing in [0, 1]", std::to_string(a.smoothing));
  if (is_probabilities && a.ignore_index >= 0)
    fail(call.op, "no ignore_index with probability targets", std::to_string(a.ignore_index));
  if (is_probabilities) {
    require_floating(call.op, self);
    if (call.in[2].defined() && !(call.in[2].sizes() == Dims{a.classes}))
      fail(call.op, "one weight per class, [" + std::to_string(a.classes) + "]",
           to_string(call.in[2]));
  }
  return a;
}

// Rows of a [n, classes] or [classes] tensor.
double row_count(const Tensor& t) { return t.dim() == 1 ? 1 : static_cast<double>(t.sizes()[0]); }

Tensor weighted(const Tensor& log_p, const Tensor& weight) {
  return weight.defined() ? mul(log_p, weight) : log_p;
}

// -sum_c w_c p_c log_p_c; p (1 - e) + e / C for p when smoothing; mean divides by the rows.
Tensor probability_loss(const Arguments& a, const Tensor& log_p, const Tensor& target,
                        const Tensor& weight) {
  const Tensor p = a.smoothing == 0 ? target
                                    : add(mul(target, 1 - a.smoothing),
                                          a.smoothing / static_cast<double>(a.classes));
  const Tensor terms = weighted(mul(log_p, p), weight);
  if (a.reduction == Reduction::none) return neg(sum(terms, {-1}));
  const Tensor total = neg(sum(terms));
  return a.reduction == Reduction::sum ? total : div(total, row_count(log_p));
}

Outputs compose_cross_entropy(const Call& call) {
  const Arguments a = arguments_of(call);
  if (!a.is_probabilities) return run_op(kCrossEntropyForward, call.in, call.attrs)[0];
  return probability_loss(a, log_softmax(call.in[0], -1), call.in[1], call.in[2]);
}

// log(softmax) of one row, in double.
std::vector<double> log_softmax_row(const Elements& self, int64_t first, int64_t classes) {
  std::vector<double> row(static_cast<size_t>(classes));
  double largest = -INFINITY;
  for (int64_t c = 0; c < classes; ++c) largest = std::fmax(largest, self.get(first + c));
  double sum = 0;
  for (int64_t c = 0; c < classes; ++c) sum += std::exp(self.get(first + c) - largest);
  for (int64_t c = 0; c < classes; ++c)
    row[static_cast<size_t>(c)] = self.get(first + c) - largest - std::log(sum);
  return row;
}

// Loss of a row with probabilities q: -sum_c w_c q_c log_p_c. An index target is the one-hot q,
// smoothed alike; its weight in the mean is w[target].
void cross_entropy_reference(const Call& call) {
  const Arguments a = arguments_of(call);
  const Elements self(call.in[0]);
  const Elements target(call.in[1]);
  const Elements out(call.out[0]);
  const auto rows = static_cast<int64_t>(row_count(call.in[0]));
  double sum = 0;
  double total = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const std::vector<double> log_p = log_softmax_row(self, i * a.classes, a.classes);
    auto w = [&](int64_t c) { return call.in[2].defined() ? Elements(call.in[2]).get(c) : 1; };
    const int64_t label =
        a.is_probabilities ? 0 : class_of(call.op, target.get_int(i), a.ignore_index, a.classes);
    double loss = 0;
    for (int64_t c = 0; label != kIgnored && c < a.classes; ++c) {
      const double p = a.is_probabilities ? target.get(i * a.classes + c) : c == label ? 1 : 0;
      const double q = p * (1 - a.smoothing) + a.smoothing / static_cast<double>(a.classes);
      if (q != 0) loss -= w(c) * q * log_p[static_cast<size_t>(c)];
    }
    if (a.reduction == Reduction::none) out.set(i, loss);
    sum += loss;
    total += a.is_probabilities ? 1 : label == kIgnored ? 0 : w(label);
  }
  if (a.reduction != Reduction::none)
    out.set(0, a.reduction == Reduction::mean ? sum / total : sum);
}

std::vector<Sample> samples() {
  const SampleInput absent{.sizes = {}, .undefined = true};
  const SampleInput six{{6}, 0, 5, DType::i64};
  const SampleInput odd{{67}, 0, 33, DType::i64};
  const int64_t none = 0;
  const int64_t mean = 1;
  const int64_t sum = 2;
  const int64_t off = -100;
  return {{{{{6, 5}}, six, absent}, {mean, off, 0.0}},
          {{{{6, 5}}, six, {{5}, 0.5, 2}}, {mean, int64_t{2}, 0.1}},
          {{{{67, 33}}, odd, absent}, {sum, int64_t{3}, 0.1}},
          {{{{67, 33}}, odd, {{33}, 0.5, 2}}, {none, off, 0.3}},
          {{{{6, 5}}, {{6, 5}, 0, 0.4}, absent}, {mean, off, 0.0}},
          {{{{6, 5}}, {{6, 5}, 0, 0.4}, {{5}, 0.5, 2}}, {mean, off, 0.2}},
          {{{{6, 5}}, {{6, 5}, 0, 0.4}, absent}, {none, off, 0.2}},
          {{{{7}}, {{}, 0, 7, DType::i64}, absent}, {mean, off, 0.0}}};
}

}  // namespace

constinit const OpDef kCrossEntropyLoss{
    .name = "aten::cross_entropy_loss",
    .schema =
        "(Tensor self, Tensor target, Tensor? weight=None, int reduction=Mean, "
        "int ignore_index=-100, float label_smoothing=0.0)",
    .doc = "nll_loss(log_softmax(self)) for class targets or class probabilities",
    .kind = OpKind::composite,
    .compose = compose_cross_entropy,
    .autocast = {AutocastRule::f32, AutocastRule::none},
    .reference = cross_entropy_reference,
    .samples = samples};

Tensor cross_entropy(const Tensor& self, const Tensor& target, const Tensor& weight,
                     Reduction reduction, int64_t ignore_index, double label_smoothing) {
  return run_op(kCrossEntropyLoss, {self, target, weight},
                {reduction_attr(reduction), ignore_index, label_smoothing});
}

}  // namespace epilogue
