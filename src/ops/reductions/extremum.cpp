// SPDX-License-Identifier: Apache-2.0
// max, min, argmax and argmin, of all elements or along one dimension. NaN is larger than every
// number and smaller too; of equal elements the first one counts.
#include <cmath>

#include "epilogue/ops.h"
#include "ops/ops.h"
#include "ops/reductions/lines.h"
#include "ops/reference.h"
#include "ops/run_op.h"

namespace epilogue {
namespace {

// Attributes of all four: dim (absent: all elements), keepdim.
bool has_dim(const Call& call) { return call.has_attr(0); }

int extremum_dim(const Call& call) { return named_dim(call, call.in[0].dim()); }

Dims sizes_of_result(const Call& call) {
  const Tensor& self = call.in[0];
  const bool keepdim = call.attr<bool>(1);
  if (!has_dim(call)) {
    if (self.numel() == 0) fail(call.op, "at least one element", to_string(self));
    return keepdim ? Dims::filled(self.dim(), 1) : Dims{};
  }
  const int dim = extremum_dim(call);
  if (self.dim() == 0) return {};
  if (self.sizes()[dim] == 0)
    fail(call.op, "elements in dimension " + std::to_string(dim), to_string(self));
  return reduced_sizes(self.sizes(), {dim}, keepdim);
}

OutMetas infer_extremum(const Call& call) {
  const OutMeta values{sizes_of_result(call), call.in[0].dtype()};
  if (!has_dim(call)) return values;
  return {values, {values.sizes, DType::i64}};
}
OutMetas infer_index(const Call& call) { return OutMeta{sizes_of_result(call), DType::i64}; }

// Where the extremum of a line is.
template <int kSign, class Get>
int64_t extremum_at(int64_t n, Get&& get) {
  int64_t at = 0;
  for (int64_t i = 1; i < n; ++i) {
    const auto best = get(at);
    const auto here = get(i);
    if constexpr (std::is_floating_point_v<decltype(here)>) {
      if (std::isnan(best)) break;
      if (std::isnan(here)) {
        at = i;
        continue;
      }
    }
    if (kSign > 0 ? here > best : here < best) at = i;
  }
  return at;
}

// Calls body(line, index of the extremum in the line, its row-major index).
template <int kSign, class Body>
void for_each_extremum(const Call& call, Body&& body) {
  const Tensor& self = call.in[0];
  const Elements in(self);
  const bool is_whole = !has_dim(call);
  const Lines lines(is_whole ? Dims{self.numel()} : self.sizes(),
                    is_whole ? 0 : extremum_dim(call));
  for (int64_t l = 0; l < lines.count; ++l) {
    const auto index = [&](int64_t i) { return lines.first(l) + i * lines.step; };
    const int64_t at =
        is_floating(self.dtype())
            ? extremum_at<kSign>(lines.n, [&](int64_t i) { return in.get(index(i)); })
            : extremum_at<kSign>(lines.n, [&](int64_t i) { return in.get_int(index(i)); });
    body(l, at, index(at));
  }
}

template <int kSign>
void extremum_reference(const Call& call) {
  const Elements in(call.in[0]);
  const Elements values(call.out[0]);
  for_each_extremum<kSign>(call, [&](int64_t line, int64_t at, int64_t index) {
    values.copy(line, in, index);
    if (has_dim(call)) Elements(call.out[1]).set_int(line, at);
  });
}
template <int kSign>
void index_reference(const Call& call) {
  const Elements out(call.out[0]);
  for_each_extremum<kSign>(call, [&](int64_t line, int64_t at, int64_t) { out.set_int(line, at); });
}

// The gradient over all elements is shared evenly among those that are the extremum. Along a
// dimension: to the one whose index was given.
Gradients whole_extremum_gradient(const GradCall& g) {
  const Dims& sizes = g.in_meta[0].sizes;
  if (!g.has_attr(0)) {
    const Tensor is_it = to(eq(g.in[0], g.out[0]), g.in_meta[0].dtype);
    return {mul(is_it, div(g.dout, sum(is_it)))};
  }
  if (sizes.empty()) return {g.dout};
  const auto dim = g.attr<int64_t>(0);
  const bool keepdim = g.attr<bool>(1);
  const Tensor indices = keepdim ? g.out[1] : unsqueeze(g.out[1], dim);
  const Tensor zero = zeros(sizes, g.in_meta[0].dtype, g.dout.device());
  return {scatter_add(zero, dim, indices, keepdim ? g.dout : unsqueeze(g.dout, dim))};
}

double elements_of_input(const Call& call) { return static_cast<double>(call.in[0].numel()); }

std::vector<Sample> extremum_samples() {
  const auto along = [](int64_t dim, bool keepdim) { return std::vector<Attr>{dim, keepdim}; };
  const std::vector<Attr> whole = {Attr(), false};
  return {{{{{3, 5}}}, whole},
          {{{{3, 5}}}, along(1, false)},
          {{{{3, 5}}}, along(0, true)},
          {{{{2, 3, 4}}}, along(-2, false)},
          {{{{67, 33}}}, along(-1, true)},
          {{{{33, 67}}}, along(0, false)},
          {{{{2, 5003}}}, along(1, false)},
          {{{{9001}}}, whole},
          {{{{}}}, along(-1, false)},
          {{{{}}}, whole},
          {{{{40, 3}, 0, 3, DType::i64}}, along(0, false)},
          {{{{0, 3}}}, along(1, false)}};
}

template <int kSign>
constexpr OpDef extremum_op(std::string_view name, std::string_view doc) {
  return {.name = name,
          .schema = "(Tensor self, int? dim=None, bool keepdim=False)",
          .doc = doc,
          .infer = infer_extremum,
          .flops = elements_of_input,
          .vjp = whole_extremum_gradient,
          .saves = save_input(0) | kSaveOutput,
          .reference = extremum_reference<kSign>,
          .samples = extremum_samples};
}
template <int kSign>
constexpr OpDef index_op(std::string_view name, std::string_view doc) {
  return {.name = name,
          .schema = "(Tensor self, int? dim=None, bool keepdim=False)",
          .doc = doc,
          .infer = infer_index,
          .flops = elements_of_input,
          .reference = index_reference<kSign>,
          .samples = extremum_samples};
}

Extremum along(const OpDef& op, const Tensor& self, int64_t dim, bool keepdim) {
  const Tensor in[] = {self};
  const Attr attrs[] = {dim, keepdim};
  Outputs out = run_op(op, in, attrs);
  return {out[0], out[1]};
}
Tensor index_of(const OpDef& op, const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  return run_op(op, args(self), {dim ? Attr(*dim) : Attr(), keepdim});
}

}  // namespace

constinit const OpDef kMax =
    extremum_op<1>("aten::max", "the largest element, or along a dimension it and its index");
constinit const OpDef kMin =
    extremum_op<-1>("aten::min", "the smallest element, or along a dimension it and its index");
constinit const OpDef kArgmax =
    index_op<1>("aten::argmax", "index of the first largest element, of all or along a dimension");
constinit const OpDef kArgmin = index_op<-1>(
    "aten::argmin", "index of the first smallest element, of all or along a dimension");

Tensor max(const Tensor& self) { return run_op(kMax, args(self), {Attr(), false}); }
Tensor min(const Tensor& self) { return run_op(kMin, args(self), {Attr(), false}); }
Extremum max(const Tensor& self, int64_t dim, bool keepdim) {
  return along(kMax, self, dim, keepdim);
}
Extremum min(const Tensor& self, int64_t dim, bool keepdim) {
  return along(kMin, self, dim, keepdim);
}
Tensor max(const Tensor& self, const Tensor& other) { return maximum(self, other); }
Tensor min(const Tensor& self, const Tensor& other) { return minimum(self, other); }
Tensor argmax(const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  return index_of(kArgmax, self, dim, keepdim);
}
Tensor argmin(const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  return index_of(kArgmin, self, dim, keepdim);
}

}  // namespace epilogue
