// SPDX-License-Identifier: Apache-2.0
// cumsum along one dimension, and its gradient: the same from the other end.
#include "epilogue/ops.h"
#include "ops/ops.h"
#include "ops/reductions/lines.h"
#include "ops/reference.h"
#include "ops/run_op.h"

namespace epilogue {
namespace {

// Attributes: dim, dtype of sum and result (absent: the input's, i64 for integers).
OutMetas infer_forward(const Call& call) {
  const Tensor& self = call.in[0];
  named_dim(call, self.dim());
  const DType natural = is_floating(self.dtype()) ? self.dtype() : DType::i64;
  return OutMeta{self.sizes(), call.has_attr(1) ? call.attr<DType>(1) : natural};
}

OutMetas infer_backward(const Call& call) {
  named_dim(call, call.in[0].dim());
  require_floating(call.op, call.in[0]);
  return infer_unary(call);
}

template <bool kReversed>
void cumsum_reference(const Call& call) {
  const Tensor& self = call.in[0];
  const Lines lines(self.sizes(), named_dim(call, self.dim()));
  const Elements in(self);
  const Elements out(call.out[0]);
  const bool floating = is_floating(call.out[0].dtype());
  for (int64_t l = 0; l < lines.count; ++l) {
    double sum = 0;
    int64_t whole = 0;
    for (int64_t i = 0; i < lines.n; ++i) {
      const int64_t at = lines.first(l) + (kReversed ? lines.n - 1 - i : i) * lines.step;
      if (floating) {
        out.set(at, sum += in.get(at));
      } else {
        out.set_int(at, whole += in.get_int(at));
      }
    }
  }
}

std::vector<Sample> forward_samples() {
  return {{{{{3, 5}}}, {int64_t{1}, Attr()}},     {{{{3, 5}}}, {int64_t{0}, Attr()}},
          {{{{2, 3, 4}}}, {int64_t{-2}, Attr()}}, {{{{67, 33}}}, {int64_t{-1}, Attr()}},
          {{{{33, 67}}}, {int64_t{0}, Attr()}},   {{{{5003}}}, {int64_t{0}, DType::f64}},
          {{{{}}}, {int64_t{0}, Attr()}},         {{{{0, 3}}}, {int64_t{1}, Attr()}}};
}
std::vector<Sample> backward_samples() {
  return {{{{{3, 5}}}, {int64_t{1}}},
          {{{{2, 3, 4}}}, {int64_t{1}}},
          {{{{67, 33}}}, {int64_t{0}}},
          {{{{}}}, {int64_t{0}}}};
}

}  // namespace

constinit const OpDef kCumsum{
    .name = "aten::cumsum",
    .schema = "(Tensor self, int dim, *, ScalarType? dtype=None)",
    .doc = "sums of all elements up to each along a dimension; integers sum to i64",
    .infer = infer_forward,
    .flops = flops_per_element<1>,
    .vjp = [](const GradCall& g) -> Gradients {
      return {run_op(kCumsumBackward, args(to(g.dout, g.in_meta[0].dtype)), {g.attrs[0]})};
    },
    .autocast = {AutocastRule::none, AutocastRule::f32_result},
    .autocast_attr = 1,
    .reference = cumsum_reference<false>,
    .samples = forward_samples};

constinit const OpDef kCumsumBackward{
    .name = "aten::cumsum_backward",
    .schema = "(Tensor grad_output, int dim)",
    .doc = "sums of all elements from each on along a dimension",
    .infer = infer_backward,
    .flops = flops_per_element<1>,
    .vjp = [](const GradCall& g) -> Gradients { return {cumsum(g.dout, g.attr<int64_t>(0))}; },
    .reference = cumsum_reference<true>,
    .samples = backward_samples};

Tensor cumsum(const Tensor& self, int64_t dim, std::optional<DType> dtype) {
  return run_op(kCumsum, args(self), {dim, dtype ? Attr(*dtype) : Attr()});
}

}  // namespace epilogue
