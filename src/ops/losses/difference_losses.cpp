// SPDX-License-Identifier: Apache-2.0
// l1_loss, smooth_l1_loss and huber_loss: functions of |self - target|, made of pointwise ops, so
// that programs take them whole and gradients follow from the parts.
#include <cmath>

#include "epilogue/ops.h"
#include "ops/losses/losses.h"
#include "ops/ops.h"
#include "ops/reference.h"
#include "ops/run_op.h"

namespace epilogue {
namespace {

void require_pair(const Call& call) {
  require_target_shape(call.op, call.in[0], call.in[1]);
  if (!is_floating(result_dtype(call.in)))
    fail(call.op, "a floating tensor", to_string(call.in[0]) + " and " + to_string(call.in[1]));
  reduction_of(call, 0);
}

// Where the square ends: beta or delta.
double bend_of(const Call& call, bool may_be_zero) {
  const auto bend = call.attr<double>(1);
  if (!(may_be_zero ? bend >= 0 : bend > 0))
    fail(call.op, may_be_zero ? "a beta of 0 or more" : "a delta above 0", std::to_string(bend));
  return bend;
}

Tensor distance(const Call& call) { return abs(sub(call.in[0], call.in[1])); }

Outputs compose_l1(const Call& call) {
  require_pair(call);
  return reduced(distance(call), reduction_of(call, 0));
}

// z^2 / (2 beta) below beta, z - beta / 2 from it on.
Outputs compose_smooth_l1(const Call& call) {
  require_pair(call);
  const double beta = bend_of(call, true);
  const Tensor z = distance(call);
  if (beta == 0) return reduced(z, reduction_of(call, 0));
  const Tensor loss = where(lt(z, beta), mul(mul(z, z), 0.5 / beta), sub(z, 0.5 * beta));
  return reduced(loss, reduction_of(call, 0));
}

// z^2 / 2 up to delta, delta (z - delta / 2) above.
Outputs compose_huber(const Call& call) {
  require_pair(call);
  const double delta = bend_of(call, false);
  const Tensor z = distance(call);
  const Tensor loss = where(le(z, delta), mul(mul(z, z), 0.5), mul(sub(z, 0.5 * delta), delta));
  return reduced(loss, reduction_of(call, 0));
}

// The reference: `term` of each distance, in double.
template <class Term>
void reference(const Call& call, Term&& term) {
  const Elements self(call.in[0]);
  const Elements target(call.in[1]);
  reduce_reference(call, call.in[0].numel(),
                   [&](int64_t i) { return term(std::abs(self.get(i) - target.get(i))); });
}

std::vector<Sample> difference_samples(const std::vector<Attr>& more,
                                       const std::vector<Attr>& others) {
  std::vector<Sample> list = {{{{{3, 5}}, {{3, 5}}}, {int64_t{1}}},
                              {{{{67, 33}}, {{67, 33}}}, {int64_t{2}}},
                              {{{{33, 7}}, {{33, 7}}}, {int64_t{0}}},
                              {{{{}}, {{}}}, {int64_t{1}}},
                              {{{{0, 3}}, {{0, 3}}}, {int64_t{2}}}};
  for (size_t i = 0; i < list.size(); ++i) {
    const std::vector<Attr>& attrs = i % 2 == 0 ? more : others;
    list[i].attrs.insert(list[i].attrs.end(), attrs.begin(), attrs.end());
  }
  return list;
}

}  // namespace

constinit const OpDef kL1Loss{
    .name = "aten::l1_loss",
    .schema = "(Tensor self, Tensor target, int reduction=Mean)",
    .doc = "|self - target|: each, their mean or their sum",
    .kind = OpKind::composite,
    .compose = compose_l1,
    .autocast = {AutocastRule::f32, AutocastRule::f32},
    .reference = [](const Call& call) { reference(call, [](double z) { return z; }); },
    .samples = [] { return difference_samples({}, {}); }};

constinit const OpDef kSmoothL1Loss{
    .name = "aten::smooth_l1_loss",
    .schema = "(Tensor self, Tensor target, int reduction=Mean, float beta=1.0)",
    .doc = "with z = |self - target|: z^2 / (2 beta) below beta, z - beta / 2 from it on",
    .kind = OpKind::composite,
    .compose = compose_smooth_l1,
    .autocast = {AutocastRule::f32, AutocastRule::f32},
    .reference =
        [](const Call& call) {
          const auto beta = call.attr<double>(1);
          reference(call,
                    [beta](double z) { return z < beta ? z * z / (2 * beta) : z - beta / 2; });
        },
    .samples = [] { return difference_samples({1.0}, {0.0}); }};

constinit const OpDef kHuberLoss{
    .name = "aten::huber_loss",
    .schema = "(Tensor self, Tensor target, int reduction=Mean, float delta=1.0)",
    .doc = "with z = |self - target|: z^2 / 2 up to delta, delta (z - delta / 2) above",
    .kind = OpKind::composite,
    .compose = compose_huber,
    .autocast = {AutocastRule::f32, AutocastRule::f32},
    .reference =
        [](const Call& call) {
          const auto delta = call.attr<double>(1);
          reference(call,
                    [delta](double z) { return z <= delta ? z * z / 2 : delta * (z - delta / 2); });
        },
    .samples = [] { return difference_samples({1.0}, {0.6}); }};

Tensor l1_loss(const Tensor& self, const Tensor& target, Reduction reduction) {
  return run_op(kL1Loss, args(self, target), {reduction_attr(reduction)});
}
Tensor smooth_l1_loss(const Tensor& self, const Tensor& target, Reduction reduction, double beta) {
  return run_op(kSmoothL1Loss, args(self, target), {reduction_attr(reduction), beta});
}
Tensor huber_loss(const Tensor& self, const Tensor& target, Reduction reduction, double delta) {
  return run_op(kHuberLoss, args(self, target), {reduction_attr(reduction), delta});
}

}  // namespace epilogue
