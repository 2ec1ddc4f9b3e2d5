// SPDX-License-Identifier: Apache-2.0
// permute, squeeze and unsqueeze: views with dimensions reordered, dropped or added.
#include "epilogue/ops.h"
#include "ops/ops.h"
#include "ops/run_op.h"
#include "ops/shape.h"
#include "ops/strided_view.h"

namespace epilogue {
namespace {

// Sizes and strides of a view.
struct Layout {
  Dims sizes;
  Dims strides;
};

Layout permuted(const Call& call) {
  const Tensor& self = call.in[0];
  const auto& dims = call.attr<Dims>(0);
  if (dims.rank() != self.dim())
    fail(call.op, "one number per dimension of " + to_string(self), to_string(dims));
  normalize_dims(call.op, dims, self.dim());  // each once
  Layout to;
  for (const int64_t d : dims) {
    const int from = normalize_dim(call.op, d, self.dim());
    to.sizes.push_back(self.sizes()[from]);
    to.strides.push_back(self.strides()[from]);
  }
  return to;
}

Layout squeezed(const Call& call) {
  const Tensor& self = call.in[0];
  const Dims dims = normalize_dims(call.op, call.attr<Dims>(0), self.dim());
  Layout to;
  for (int d = 0, next = 0; d < self.dim(); ++d) {
    const bool is_named = next < dims.rank() && dims[next] == d;
    next += is_named ? 1 : 0;
    if (is_named && self.sizes()[d] == 1) continue;
    to.sizes.push_back(self.sizes()[d]);
    to.strides.push_back(self.strides()[d]);
  }
  return to;
}

Layout unsqueezed(const Call& call) {
  const Tensor& self = call.in[0];
  const int rank = self.dim() + 1;
  const int at = named_dim(call, rank);
  Layout to;
  for (int d = 0; d < rank; ++d) {
    const int from = d < at ? d : d - 1;
    const bool is_last = at == rank - 1;
    if (d == at) {
      to.sizes.push_back(1);
      to.strides.push_back(is_last ? 1 : self.sizes()[at] * self.strides()[at]);
    } else {
      to.sizes.push_back(self.sizes()[from]);
      to.strides.push_back(self.strides()[from]);
    }
  }
  return to;
}

template <Layout (*kLayout)(const Call&)>
Outputs compose(const Call& call) {
  const Layout to = kLayout(call);
  return strided_view(call.in[0], to.sizes, to.strides);
}
template <Layout (*kLayout)(const Call&)>
void permute_reference(const Call& call) {
  gather_reference(call, kLayout(call).strides, 0);
}

// The permutation that undoes another.
Dims inverse(const OpDef& op, const Dims& dims) {
  Dims undo = dims;
  for (int i = 0; i < dims.rank(); ++i) undo[normalize_dim(op, dims[i], dims.rank())] = i;
  return undo;
}

Gradients reshape_back(const GradCall& g) { return {reshape(g.dout, g.in_meta[0].sizes)}; }

}  // namespace

constinit const OpDef kPermute{.name = "aten::permute",
                               .schema = "(Tensor self, int[] dims)",
                               .doc = "a view with the dimensions in another order",
                               .kind = OpKind::view,
                               .compose = compose<permuted>,
                               .flops = flops_per_element<0>,
                               .bytes = no_bytes,
                               .vjp = [](const GradCall& g) -> Gradients {
                                 return {permute(g.dout, inverse(kPermute, g.attr<Dims>(0)))};
                               },
                               .reference = permute_reference<permuted>,
                               .samples =
                                   [] {
                                     return std::vector<Sample>{
                                         {.in = {{.sizes = {3, 5}}}, .attrs = {Dims{1, 0}}},
                                         {.in = {{.sizes = {2, 3, 4}}}, .attrs = {Dims{2, 0, 1}}},
                                         {.in = {{.sizes = {2, 3, 4}}}, .attrs = {Dims{-2, -1, 0}}},
                                         {.in = {{.sizes = {}}}, .attrs = {Dims{}}},
                                         {.in = {{.sizes = {2, 0, 4}}}, .attrs = {Dims{1, 2, 0}}}};
                                   }};

constinit const OpDef kSqueeze{
    .name = "aten::squeeze",
    .schema = "(Tensor self, int[] dim)",
    .doc = "a view without the named dimensions (all, if none is named) that have size 1",
    .kind = OpKind::view,
    .compose = compose<squeezed>,
    .flops = flops_per_element<0>,
    .bytes = no_bytes,
    .vjp = reshape_back,
    .reference = permute_reference<squeezed>,
    .samples = [] {
      return std::vector<Sample>{{.in = {{.sizes = {3, 1, 5, 1}}}, .attrs = {Dims{}}},
                                 {.in = {{.sizes = {3, 1, 5, 1}}}, .attrs = {Dims{1}}},
                                 {.in = {{.sizes = {1, 1, 4}}}, .attrs = {Dims{-3, 2}}},
                                 {.in = {{.sizes = {}}}, .attrs = {Dims{}}},
                                 {.in = {{.sizes = {1, 0}}}, .attrs = {Dims{0}}}};
    }};

constinit const OpDef kUnsqueeze{
    .name = "aten::unsqueeze",
    .schema = "(Tensor self, int dim)",
    .doc = "a view with a dimension of size 1 more, before dimension `dim`",
    .kind = OpKind::view,
    .compose = compose<unsqueezed>,
    .flops = flops_per_element<0>,
    .bytes = no_bytes,
    .vjp = reshape_back,
    .reference = permute_reference<unsqueezed>,
    .samples = [] {
      return std::vector<Sample>{{.in = {{.sizes = {3, 5}}}, .attrs = {int64_t{0}}},
                                 {.in = {{.sizes = {3, 5}}}, .attrs = {int64_t{1}}},
                                 {.in = {{.sizes = {3, 5}}}, .attrs = {int64_t{-1}}},
                                 {.in = {{.sizes = {}}}, .attrs = {int64_t{0}}},
                                 {.in = {{.sizes = {0, 3}}}, .attrs = {int64_t{-2}}}};
    }};

Tensor permute(const Tensor& self, Dims dims) { return run_op(kPermute, args(self), {dims}); }
Tensor squeeze(const Tensor& self, Dims dims) { return run_op(kSqueeze, args(self), {dims}); }
Tensor unsqueeze(const Tensor& self, int64_t dim) { return run_op(kUnsqueeze, args(self), {dim}); }

}  // namespace epilogue
