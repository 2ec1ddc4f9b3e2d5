// SPDX-License-Identifier: Apache-2.0
// Copies: clone, dtype conversion, cat, in-place writes, and reshape, which copies when it must.
#include <vector>

#include "epilogue/ops.h"
#include "ops/cat_parts.h"
#include "ops/element_cast.h"
#include "ops/ops.h"
#include "ops/overlap.h"
#include "ops/reference.h"
#include "ops/run_op.h"
#include "ops/view_sizes.h"

namespace epilogue {
namespace {

double no_own_bytes(const Call&) { return 0; }
double source_and_result_bytes(const Call& call) {
  return static_cast<double>(call.in.back().bytes() + call.out[0].bytes());
}
double result_bytes(const Call& call) { return static_cast<double>(call.out[0].bytes()); }

// to[i] = cast(from[i]) after broadcasting `from`.
void copy_elements_reference(const Tensor& to, const Tensor& from) {
  std::vector<int64_t> sources;
  for_each_offset(to.sizes(), broadcast_strides(from, to.sizes()),
                  [&](int64_t offset) { sources.push_back(offset); });
  dispatch(to.dtype(), [&]<class To>() {
    dispatch(from.dtype(), [&]<class From>() {
      auto next = sources.begin();
      for_each_offset(to.sizes(), to.strides(), [&](int64_t offset) {
        static_cast<To*>(to.data())[offset] =
            cast_element<To>(static_cast<const From*>(from.data())[*next++]);
      });
    });
  });
}
void copy_reference(const Call& call) { copy_elements_reference(call.out[0], call.in.back()); }

// A view keeps its elements' order, so this is the reference of reshape and contiguous too.
void reorder_reference(const Call& call) {
  copy_elements_reference(view(call.out[0], call.in[0].sizes()), call.in[0]);
}

Outputs compose_reshape(const Call& call) {
  const Tensor& self = call.in[0];
  const Dims sizes = resolve_sizes(call.op, call.attr<Dims>(0), self.numel());
  if (view_strides(self, sizes)) return view(self, sizes);
  return unsafe_view(clone(self), sizes);
}

Outputs compose_to(const Call& call) {
  const Tensor& self = call.in[0];
  const auto dtype = call.attr<DType>(0);
  if (self.dtype() == dtype) return self;
  return run_op(kToCopy, args(self), {dtype});
}

std::vector<Sample> strided_samples(const std::vector<Attr>& attrs) {
  return {{.in = {{.sizes = {3, 5}}}, .attrs = attrs},
          {.in = {{.sizes = {}}}, .attrs = attrs},
          {.in = {{.sizes = {2, 3, 67}}}, .attrs = attrs},
          {.in = {{.sizes = {0, 3}}}, .attrs = attrs}};
}

// PyTorch's legacy: a 1-D tensor without elements fits everywhere.
bool is_skipped_by_cat(const Tensor& t) { return t.dim() == 1 && t.numel() == 0; }

// The first tensor that decides the result's rank and sizes; the first of all where none does.
const Tensor& cat_model(const Call& call) {
  for (const Tensor& t : call.in)
    if (!is_skipped_by_cat(t)) return t;
  return call.in[0];
}

OutMetas infer_cat(const Call& call) {
  const Tensor& model = cat_model(call);
  Dims sizes = model.sizes();
  if (sizes.empty()) fail(call.op, "tensors with at least one dimension", to_string(model));
  const int dim = named_dim(call, sizes.rank());
  sizes[dim] = 0;
  for (const Tensor& t : call.in) {
    if (is_skipped_by_cat(t)) continue;
    Dims others = t.sizes();
    if (others.rank() == sizes.rank()) others[dim] = sizes[dim];
    if (!(others == sizes))
      fail(call.op,
           "sizes that agree with " + to_string(model.sizes()) + " except in dimension " +
               std::to_string(dim),
           to_string(t.sizes()));
    if (__builtin_add_overflow(sizes[dim], t.sizes()[dim], &sizes[dim]))
      fail(call.op, "fewer than 2^63 rows", "more");
  }
  return OutMeta{sizes, result_dtype(call.in)};
}

Gradients cat_vjp(const GradCall& g) {
  Gradients grads;
  int64_t start = 0;
  const int rank = g.dout.dim();
  const auto dim = static_cast<int>((g.attr<int64_t>(0) + rank) % rank);
  for (size_t i = 0; i < g.in_meta.size(); ++i) {
    const Dims& sizes = g.in_meta[i].sizes;
    const bool skipped = sizes == Dims{0};
    const int64_t end = skipped ? start : start + sizes[dim];
    const bool wanted = g.needs[i] && !skipped;
    grads.push_back(wanted ? slice(g.dout, dim, start, end) : Tensor());
    start = end;
  }
  return grads;
}

void cat_reference(const Call& call) { for_each_cat_part(call, copy_elements_reference); }

OutMetas infer_copy_(const Call& call) {
  const Tensor& self = call.in[0];
  const Tensor& source = call.in[1];
  if (!(broadcast_sizes(call.op, self.sizes(), source.sizes()) == self.sizes()))
    fail(call.op, "a source that broadcasts to " + to_string(self.sizes()), to_string(source));
  require_writable(call.op, self, source);
  return infer_like_first(call);
}

void fill_reference(const Call& call, double value) {
  const Tensor& out = call.out[0];
  dispatch(out.dtype(), [&]<class T>() {
    for_each_offset(out.sizes(), out.strides(), [&](int64_t offset) {
      static_cast<T*>(out.data())[offset] = cast_element<T>(value);
    });
  });
}

}  // namespace

constinit const OpDef kReshape{
    .name = "aten::reshape",
    .schema = "(Tensor self, SymInt[] shape)",
    .doc = "other sizes: a view where the strides allow it, else a copy; one size may be -1",
    .kind = OpKind::composite,
    .compose = compose_reshape,
    .flops = flops_per_element<0>,
    .bytes = no_own_bytes,
    .reference = reorder_reference,
    .samples = [] {
      return std::vector<Sample>{{.in = {{.sizes = {3, 4}}}, .attrs = {Dims{2, 6}}},
                                 {.in = {{.sizes = {2, 3, 4}}}, .attrs = {Dims{-1, 4}}},
                                 {.in = {{.sizes = {}}}, .attrs = {Dims{-1}}},
                                 {.in = {{.sizes = {0, 3}}}, .attrs = {Dims{3, 0}}}};
    }};

constinit const OpDef kContiguous{
    .name = "aten::contiguous",
    .schema = "(Tensor self, *, MemoryFormat memory_format=contiguous_format)",
    .doc = "self where it is contiguous, else a copy that is",
    .kind = OpKind::composite,
    .compose = [](const Call& call) -> Outputs {
      return call.in[0].is_contiguous() ? call.in[0] : clone(call.in[0]);
    },
    .flops = flops_per_element<0>,
    .bytes = no_own_bytes,
    .reference = copy_reference,
    .samples = [] { return strided_samples({}); }};

constinit const OpDef kClone{.name = "aten::clone",
                             .schema = "(Tensor self, *, MemoryFormat? memory_format=None)",
                             .doc = "a contiguous copy",
                             .pointwise = true,
                             .infer = infer_unary,
                             .flops = flops_per_element<0>,
                             .vjp = [](const GradCall& g) -> Gradients { return {g.dout}; },
                             .reference = copy_reference,
                             .samples = [] { return strided_samples({}); }};

constinit const OpDef kTo{
    .name = "aten::to",
    .schema =
        "(Tensor self, ScalarType dtype, bool non_blocking=False, bool copy=False, "
        "MemoryFormat? memory_format=None)",
    .doc = "self where it has the dtype, else a copy that has",
    .kind = OpKind::composite,
    .compose = compose_to,
    .flops = flops_per_element<0>,
    .bytes = no_own_bytes,
    .reference = copy_reference,
    .samples = [] { return strided_samples({DType::f64}); }};

constinit const OpDef kToCopy{
    .name = "aten::_to_copy",
    .schema = "(Tensor self, *, ScalarType? dtype=None)",
    .doc = "a contiguous copy in another dtype",
    .pointwise = true,
    .infer = [](const Call& call) -> OutMetas {
      return OutMeta{call.in[0].sizes(), call.attr<DType>(0)};
    },
    .flops = flops_per_element<0>,
    .vjp = [](const GradCall& g) -> Gradients { return {to(g.dout, g.in_meta[0].dtype)}; },
    .reference = copy_reference,
    .samples = [] { return strided_samples({DType::f64}); }};

constinit const OpDef kCat{
    .name = "aten::cat",
    .schema = "(Tensor[] tensors, int dim=0)",
    .doc = "tensors joined in one dimension",
    .infer = infer_cat,
    .flops = flops_per_element<0>,
    .vjp = cat_vjp,
    .autocast = {AutocastRule::promote, AutocastRule::none},
    .reference = cat_reference,
    .samples = [] {
      return std::vector<Sample>{
          {.in = {{.sizes = {2, 3}}, {.sizes = {4, 3}}}, .attrs = {int64_t{0}}},
          {.in = {{.sizes = {2, 3}}, {.sizes = {2, 1}}, {.sizes = {2, 0}}}, .attrs = {int64_t{-1}}},
          {.in = {{.sizes = {0}}, {.sizes = {2, 3}}}, .attrs = {int64_t{1}}},
          {.in = {{.sizes = {5}}}, .attrs = {int64_t{0}}}};
    }};

constinit const OpDef kCopy_{
    .name = "aten::copy_",
    .schema = "(Tensor self, Tensor src, bool non_blocking=False)",
    .doc = "self = src, broadcast and converted",
    .kind = OpKind::inplace,
    .pointwise = true,
    .infer = infer_copy_,
    .flops = flops_per_element<0>,
    .bytes = source_and_result_bytes,
    .overwrites = true,
    .reference = copy_reference,
    .samples = [] {
      return std::vector<Sample>{
          {.in = {{.sizes = {3, 5}}, {.sizes = {3, 5}}}},
          {.in = {{.sizes = {2, 3, 4}}, {.sizes = {3, 1}, .dtype = DType::f64}}},
          {.in = {{.sizes = {33}}, {.sizes = {}, .dtype = DType::i64}}}};
    }};

constinit const OpDef kFill_{
    .name = "aten::fill_",
    .schema = "(Tensor self, Scalar value)",
    .doc = "every element = value",
    .kind = OpKind::inplace,
    .pointwise = true,
    .infer = infer_like_first,
    .flops = flops_per_element<0>,
    .bytes = result_bytes,
    .overwrites = true,
    .reference = [](const Call& call) { fill_reference(call, call.attr<double>(0)); },
    .samples = [] { return strided_samples({1.1}); }};

constinit const OpDef kZero_{.name = "aten::zero_",
                             .schema = "(Tensor self)",
                             .doc = "every element = 0",
                             .kind = OpKind::inplace,
                             .pointwise = true,
                             .infer = infer_like_first,
                             .flops = flops_per_element<0>,
                             .bytes = result_bytes,
                             .overwrites = true,
                             .reference = [](const Call& call) { fill_reference(call, 0); },
                             .samples = [] { return strided_samples({}); }};

Tensor reshape(const Tensor& self, Dims sizes) { return run_op(kReshape, args(self), {sizes}); }
Tensor contiguous(const Tensor& self) { return run_op(kContiguous, args(self)); }
Tensor clone(const Tensor& self) { return run_op(kClone, args(self)); }
Tensor to(const Tensor& self, DType dtype) { return run_op(kTo, args(self), {dtype}); }
Tensor Tensor::to(DType dtype) const { return epilogue::to(*this, dtype); }
Tensor cat(std::span<const Tensor> tensors, int64_t dim) {
  if (tensors.empty()) fail(kCat, "at least one tensor", "none");
  const Attr attr = dim;
  return run_op(kCat, tensors, {&attr, 1})[0];
}
Tensor cat(std::initializer_list<Tensor> tensors, int64_t dim) {
  return cat(std::span<const Tensor>(tensors.begin(), tensors.size()), dim);
}
Tensor copy_(const Tensor& self, const Tensor& src) { return run_op(kCopy_, args(self, src)); }
Tensor fill_(const Tensor& self, double value) { return run_op(kFill_, args(self), {value}); }
Tensor zero_(const Tensor& self) { return run_op(kZero_, args(self)); }

}  // namespace epilogue
