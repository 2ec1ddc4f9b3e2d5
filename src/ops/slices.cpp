// SPDX-License-Identifier: Apache-2.0
// slice, a view, and its gradient slice_backward, which writes one.
#include <algorithm>

#include "core/tensor_impl.h"
#include "epilogue/ops.h"
#include "ops/ops.h"
#include "ops/reference.h"
#include "ops/run_op.h"
#include "ops/strided_view.h"
#include "ops/view_sizes.h"

namespace epilogue {
namespace {

// A slice [start, end) with step, clamped as Python does.
struct Range {
  int dim;
  int64_t start;
  int64_t step;
  int64_t count;
};
Range slice_range(const Call& call, const Dims& sizes, size_t first_attr) {
  if (sizes.empty()) fail(call.op, "at least one dimension", to_string(sizes));
  Range r{};
  r.dim = normalize_dim(call.op, call.attr<int64_t>(first_attr), sizes.rank());
  r.step = call.attr<int64_t>(first_attr + 3);
  if (r.step < 1) fail(call.op, "a step of 1 or more", std::to_string(r.step));
  const int64_t n = sizes[r.dim];
  auto clamped = [n](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n); };
  r.start = clamped(call.attr<int64_t>(first_attr + 1));
  const int64_t end = std::max(r.start, clamped(call.attr<int64_t>(first_attr + 2)));
  r.count = end == r.start ? 0 : (end - r.start - 1) / r.step + 1;
  return r;
}
Dims sliced_sizes(Dims sizes, const Range& r) {
  sizes[r.dim] = r.count;
  return sizes;
}
Dims sliced_strides(Dims strides, const Range& r) {
  // One element is reached with any stride; a huge step must not overflow.
  strides[r.dim] = r.count > 1 ? strides[r.dim] * r.step : strides[r.dim];
  return strides;
}

Outputs compose_slice(const Call& call) {
  const Tensor& self = call.in[0];
  const Range r = slice_range(call, self.sizes(), 0);
  const int64_t skipped = r.count > 0 ? r.start * self.strides()[r.dim] : 0;
  return strided_view(self, sliced_sizes(self.sizes(), r), sliced_strides(self.strides(), r),
                      skipped);
}

OutMetas infer_slice_backward(const Call& call) {
  const auto& sizes = call.attr<Dims>(0);
  for (const int64_t d : sizes)
    if (d < 0) fail(call.op, "sizes of 0 or more", to_string(sizes));
  const Dims sliced = sliced_sizes(sizes, slice_range(call, sizes, 1));
  if (!(sliced == call.in[0].sizes()))
    fail(call.op, "a gradient of sizes " + to_string(sliced), to_string(call.in[0]));
  return OutMeta{sizes, call.in[0].dtype()};
}

void slice_backward_reference(const Call& call) {
  const Tensor slice = slice_backward_target(call);
  const Elements zeroed(call.out[0]);
  for (int64_t i = 0; i < call.out[0].numel(); ++i) zeroed.set(i, 0);
  copy_in_order(call.in[0], slice);
}

}  // namespace

Tensor slice_backward_target(const Call& call) {
  const Tensor& out = call.out[0];
  const Range r = slice_range(call, out.sizes(), 1);
  return detail::make_view(out, sliced_sizes(out.sizes(), r), sliced_strides(out.strides(), r),
                           r.count > 0 ? r.start * out.strides()[r.dim] : 0);
}

constinit const OpDef kSlice{
    .name = "aten::slice",
    .schema = "(Tensor self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1)",
    .doc = "a view of self[..., start:end:step, ...] in one dimension, clamped as in Python",
    .kind = OpKind::view,
    .compose = compose_slice,
    .flops = flops_per_element<0>,
    .bytes = no_bytes,
    .vjp = [](const GradCall& g) -> Gradients {
      return {run_op(kSliceBackward, args(g.dout),
                     {g.in_meta[0].sizes, g.attrs[0], g.attrs[1], g.attrs[2], g.attrs[3]})};
    },
    .reference =
        [](const Call& call) {
          const Tensor& self = call.in[0];
          const Range r = slice_range(call, self.sizes(), 0);
          gather_reference(call, sliced_strides(self.strides(), r),
                           r.count > 0 ? r.start * self.strides()[r.dim] : 0);
        },
    .samples =
        [] {
          auto attrs = [](int64_t dim, int64_t start, int64_t end, int64_t step) {
            return std::vector<Attr>{dim, start, end, step};
          };
          return std::vector<Sample>{
              {.in = {{.sizes = {6, 4}}}, .attrs = attrs(0, 1, 5, 2)},
              {.in = {{.sizes = {6, 4}}}, .attrs = attrs(-1, -3, INT64_MAX, 1)},
              {.in = {{.sizes = {2, 3, 4}}}, .attrs = attrs(1, 0, 2, 1)},
              {.in = {{.sizes = {5}}}, .attrs = attrs(0, 4, 2, 1)}};
        }};

constinit const OpDef kSliceBackward{
    .name = "aten::slice_backward",
    .schema =
        "(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt start, SymInt end, "
        "SymInt step)",
    .doc = "zeros of input_sizes with grad_output written to the slice",
    .infer = infer_slice_backward,
    .flops = flops_per_element<0>,
    .vjp = [](const GradCall& g) -> Gradients {
      return {slice(g.dout, g.attr<int64_t>(1), g.attr<int64_t>(2), g.attr<int64_t>(3),
                    g.attr<int64_t>(4))};
    },
    .reference = slice_backward_reference,
    .samples =
        [] {
          return std::vector<Sample>{
              {.in = {{.sizes = {2, 4}}},
               .attrs = {Dims{6, 4}, int64_t{0}, int64_t{1}, int64_t{5}, int64_t{2}}},
              {.in = {{.sizes = {6, 3}}},
               .attrs = {Dims{6, 4}, int64_t{1}, int64_t{-3}, INT64_MAX, int64_t{1}}},
              {.in = {{.sizes = {0}}},
               .attrs = {Dims{5}, int64_t{0}, int64_t{4}, int64_t{2}, int64_t{1}}}};
        }};

Tensor slice(const Tensor& self, int64_t dim, int64_t start, int64_t end, int64_t step) {
  return run_op(kSlice, args(self), {dim, start, end, step});
}

}  // namespace epilogue
