// SPDX-License-Identifier: Apache-2.0
// dropout, and the in-place Bernoulli draw that makes its mask.
#include "core/random.h"
#include "epilogue/ops.h"
#include "ops/ops.h"
#include "ops/reference.h"
#include "ops/run_op.h"

namespace epilogue {
namespace {

void require_probability(const OpDef& op, double p) {
  if (!(p >= 0 && p <= 1)) fail(op, "a probability in [0, 1]", std::to_string(p));
}

void bernoulli_reference(const Call& call) {
  const Tensor& self = call.out[0];
  const auto p = call.attr<double>(0);
  if (self.is_contiguous()) return fill_bernoulli(self, p);
  const Tensor drawn = empty(self.sizes(), self.dtype());
  fill_bernoulli(drawn, p);
  const Elements from(drawn);
  const Elements to(self);
  for (int64_t i = 0; i < self.numel(); ++i) to.set(i, from.get(i));
}

// Attributes of dropout: p, train.
Outputs compose_dropout(const Call& call) {
  const Tensor& input = call.in[0];
  const auto p = call.attr<double>(0);
  require_probability(call.op, p);
  require_floating(call.op, input);
  if (p == 0 || !call.attr<bool>(1) || input.numel() == 0) return input;
  if (p == 1) return mul(input, 0.0);
  const Tensor mask = empty(input.sizes(), input.dtype(), input.device());
  run_op(kBernoulli_, {mask}, {1 - p});
  return mul(input, div_(mask, 1 - p));
}

// Draws the same mask as the parts do from the same state of the generator.
void dropout_reference(const Call& call) {
  const auto p = call.attr<double>(0);
  const bool keeps_all = p == 0 || !call.attr<bool>(1);
  const Tensor mask = ones(call.out[0].sizes(), call.out[0].dtype());
  if (!keeps_all && p < 1) fill_bernoulli(mask, 1 - p);
  const double scale = keeps_all ? 1 : p == 1 ? 0 : 1 / (1 - p);
  pointwise_reference<2>(Call{call.op, std::array{call.in[0], mask}, {}, call.out},
                         [scale](double x, double kept) { return x * kept * scale; });
}

}  // namespace

constinit const OpDef kDropout{
    .name = "aten::dropout",
    .schema = "(Tensor input, float p, bool train)",
    .doc = "zeroes elements with probability p, scales the rest by 1 / (1 - p)",
    .kind = OpKind::composite,
    .compose = compose_dropout,
    .reference = dropout_reference,
    .samples = [] {
      return std::vector<Sample>{{{{{33, 7}}}, {0.25, true}},
                                 {{{{3, 5}}}, {0.5, false}},
                                 {{{{67}}}, {0.0, true}},
                                 {{{{67}}}, {1.0, true}},
                                 {{{{0, 3}}}, {0.5, true}}};
    }};

constinit const OpDef kBernoulli_{
    .name = "aten::bernoulli_",
    .schema = "(Tensor self, float p=0.5)",
    .doc = "1 with probability p, else 0, from the seeded generator",
    .kind = OpKind::inplace,
    .infer = [](const Call& call) -> OutMetas {
      require_probability(call.op, call.attr<double>(0));
      return OutMeta{call.in[0].sizes(), call.in[0].dtype()};
    },
    .flops = [](const Call&) { return 0.0; },
    .bytes = [](const Call& call) { return static_cast<double>(call.out[0].bytes()); },
    .overwrites = true,
    .draws = true,
    .reference = bernoulli_reference,
    .samples =
        [] {
          return std::vector<Sample>{{{{{33, 7}}}, {0.25}}, {{{{3, 5}}}, {0.0}}, {{{{67}}}, {1.0}}};
        }};

Tensor dropout(const Tensor& input, double p, bool train) {
  return run_op(kDropout, {input}, {p, train});
}

}  // namespace epilogue
