// SPDX-License-Identifier: Apache-2.0
// aten::linear: y = x W^T + b, dispatched as PyTorch does (ATen/native/Linear.cpp).
#include "epilogue/ops.h"
#include "ops/ops.h"
#include "ops/reference.h"
#include "ops/run_op.h"

namespace epilogue {
namespace {

void check(const Call& call) {
  const Tensor& x = call.in[0];
  const Tensor& w = call.in[1];
  const Tensor& b = call.in[2];
  if (w.dim() != 2) fail(call.op, "a weight [out_features, in_features]", to_string(w));
  if (x.dim() == 0 || x.size(-1) != w.size(1))
    fail(call.op,
         "an input [..., " + std::to_string(w.size(1)) + "] for the weight " + to_string(w),
         to_string(x));
  if (b.defined() && (b.dim() != 1 || b.size(0) != w.size(0)))
    fail(call.op, "a bias [" + std::to_string(w.size(0)) + "] for the weight " + to_string(w),
         to_string(b));
}

Dims output_sizes(const Tensor& x, const Tensor& w) {
  Dims sizes = x.sizes();
  sizes[x.dim() - 1] = w.size(0);
  return sizes;
}

// With a bias: one addmm over all rows, which adds the bias while it writes. Without: matmul.
Outputs compose_linear(const Call& call) {
  check(call);
  const Tensor& x = call.in[0];
  const Tensor& w = call.in[1];
  const Tensor& b = call.in[2];
  if (!b.defined()) return matmul(x, t(w));
  if (x.dim() == 2) return addmm(b, x, t(w));
  Dims rows = x.sizes();
  rows[x.dim() - 1] = 1;
  return view(addmm(b, reshape(x, {element_count(rows), w.size(1)}), t(w)), output_sizes(x, w));
}

void linear_reference(const Call& call) {
  const Elements x(call.in[0]);
  const Elements w(call.in[1]);
  const Elements y(call.out[0]);
  const int64_t n = call.in[1].size(0);
  const int64_t k = call.in[1].size(1);
  for (int64_t i = 0; i < call.out[0].numel(); ++i) {
    double sum = 0;
    for (int64_t p = 0; p < k; ++p) sum += x.get(i / n * k + p) * w.get(i % n * k + p);
    y.set(i, sum + (call.in[2].defined() ? Elements(call.in[2]).get(i % n) : 0));
  }
}

}  // namespace

constinit const OpDef kLinear{
    .name = "aten::linear",
    .schema = "(Tensor input, Tensor weight, Tensor? bias=None)",
    .doc = "input weight^T + bias: aten::t, then aten::addmm, or aten::matmul without a bias",
    .kind = OpKind::composite,
    .compose = compose_linear,
    .autocast = {AutocastRule::lower, AutocastRule::lower},
    .reference = linear_reference,
    .samples = [] {
      return std::vector<Sample>{
          {{{{5, 7}}, {{3, 7}}, {{3}}}},
          {{{{2, 3, 4}}, {{5, 4}}, {{5}}}},
          {{{{2, 3, 4}}, {{5, 4}}, {.sizes = {}, .undefined = true}}},
          {{{{4}}, {{5, 4}}, {{5}}}},
      };
    }};

Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  return run_op(kLinear, args(input, weight, bias));
}

}  // namespace epilogue
