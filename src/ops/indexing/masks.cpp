// SPDX-License-Identifier: Apache-2.0
// masked_fill, and the triangles of matrices: tril and triu.
#include "epilogue/ops.h"
#include "ops/ops.h"
#include "ops/reference.h"
#include "ops/run_op.h"

namespace epilogue {
namespace {

// where(mask, value, self) in self's dtype, so that programs can take it.
Outputs compose_masked_fill(const Call& call) {
  const Tensor& self = call.in[0];
  const Tensor& value = call.in[2];
  if (call.in[1].dtype() != DType::boolean)
    fail(call.op, "a mask of booleans", to_string(call.in[1]));
  if (value.dim() != 0) fail(call.op, "a value without dimensions", to_string(value));
  if (is_floating(value.dtype()) && !is_floating(self.dtype()))
    fail(call.op, "a whole number as the value of integers", to_string(value));
  broadcast_sizes(call.op, self.sizes(), call.in[1].sizes());
  return to(where(call.in[1], value, self), self.dtype());
}

void masked_fill_reference(const Call& call) {
  const Tensor& out = call.out[0];
  const Elements self(call.in[0], out.sizes());
  const Elements mask(call.in[1], out.sizes());
  const Elements value(call.in[2]);
  const Elements to(out);
  for (int64_t i = 0; i < out.numel(); ++i) {
    const bool is_masked = mask.get_int(i) != 0;
    to.copy(i, is_masked ? value : self, is_masked ? 0 : i);
  }
}

OutMetas infer_triangle(const Call& call) {
  if (call.in[0].dim() < 2) fail(call.op, "at least 2 dimensions", to_string(call.in[0]));
  return infer_like_first(call);
}

// Keeps column c of row r where c - r <= diagonal (tril) or >= (triu).
template <bool kLower>
void triangle_reference(const Call& call) {
  const Tensor& self = call.in[0];
  const int64_t rows = self.size(-2);
  const int64_t columns = self.size(-1);
  const auto diagonal = call.attr<int64_t>(0);
  const Elements in(self);
  const Elements out(call.out[0]);
  for (int64_t i = 0; i < self.numel(); ++i) {
    const int64_t distance = i % columns - i / columns % rows;
    const bool keeps = kLower ? distance <= diagonal : distance >= diagonal;
    if (keeps) {
      out.copy(i, in, i);
    } else {
      out.set(i, 0);
    }
  }
}

std::vector<Sample> triangle_samples() {
  return {{{{{3, 5}}}, {int64_t{0}}},     {{{{5, 3}}}, {int64_t{-1}}},
          {{{{2, 4, 4}}}, {int64_t{1}}},  {{{{67, 33}}}, {int64_t{5}}},
          {{{{3, 5}}}, {int64_t{-7}}},    {{{{3, 5}}}, {int64_t{9}}},
          {{{{300, 310}}}, {int64_t{0}}}, {{{{0, 3}}}, {int64_t{0}}}};
}

}  // namespace

constinit const OpDef kMaskedFill{.name = "aten::masked_fill",
                                  .schema = "(Tensor self, Tensor mask, Tensor value)",
                                  .doc = "the value where the mask is true, else self",
                                  .kind = OpKind::composite,
                                  .compose = compose_masked_fill,
                                  .flops = flops_per_element<1>,
                                  .reference = masked_fill_reference,
                                  .samples = [] {
                                    const auto mask = [](Dims sizes) {
                                      return SampleInput{sizes, 0, 2, DType::boolean};
                                    };
                                    return std::vector<Sample>{{{{{3, 5}}, mask({3, 5}), {{}}}},
                                                               {{{{2, 3, 4}}, mask({3, 1}), {{}}}},
                                                               {{{{5}}, mask({3, 5}), {{}}}},
                                                               {{{{67}}, mask({}), {{}}}},
                                                               {{{{0, 3}}, mask({3}), {{}}}}};
                                  }};

constinit const OpDef kTril{
    .name = "aten::tril",
    .schema = "(Tensor self, int diagonal=0)",
    .doc = "matrices with zeros above a diagonal",
    .infer = infer_triangle,
    .flops = flops_per_element<0>,
    .vjp = [](const GradCall& g) -> Gradients { return {tril(g.dout, g.attr<int64_t>(0))}; },
    .reference = triangle_reference<true>,
    .samples = triangle_samples};

constinit const OpDef kTriu{
    .name = "aten::triu",
    .schema = "(Tensor self, int diagonal=0)",
    .doc = "matrices with zeros below a diagonal",
    .infer = infer_triangle,
    .flops = flops_per_element<0>,
    .vjp = [](const GradCall& g) -> Gradients { return {triu(g.dout, g.attr<int64_t>(0))}; },
    .reference = triangle_reference<false>,
    .samples = triangle_samples};

Tensor masked_fill(const Tensor& self, const Tensor& mask, const Tensor& value) {
  return run_op(kMaskedFill, args(self, mask, value));
}
Tensor tril(const Tensor& self, int64_t diagonal) { return run_op(kTril, args(self), {diagonal}); }
Tensor triu(const Tensor& self, int64_t diagonal) { return run_op(kTriu, args(self), {diagonal}); }

}  // namespace epilogue
