// SPDX-License-Identifier: Apache-2.0
// Views: as_strided and what is built on it, and view. They share storage and launch nothing.
#include <algorithm>
#include <optional>

#include "core/tensor_impl.h"
#include "epilogue/ops.h"
#include "ops/ops.h"
#include "ops/reference.h"
#include "ops/run_op.h"
#include "ops/strided_view.h"
#include "ops/view_sizes.h"

namespace epilogue {
namespace {

void view_reference(const Call& call) { copy_in_order(call.in[0], call.out[0]); }

// Memory safety rests on this: every element of the view lies within the storage.
void require_within_storage(const Call& call, const Dims& sizes, const Dims& strides,
                            int64_t offset) {
  const Tensor& self = call.in[0];
  int64_t last = offset;
  bool overflow = false;
  bool negative = offset < 0;
  bool is_empty = false;
  for (int d = 0; d < sizes.rank(); ++d) {
    negative = negative || sizes[d] < 0 || strides[d] < 0;
    if (negative) break;
    is_empty = is_empty || sizes[d] == 0;
    int64_t reach = 0;
    overflow = overflow || __builtin_mul_overflow(sizes[d] - 1, strides[d], &reach) ||
               __builtin_add_overflow(last, reach, &last);
  }
  const auto capacity =
      static_cast<int64_t>(self.impl()->storage->bytes() / dtype_bytes(self.dtype()));
  const bool inside = is_empty ? offset <= capacity : !overflow && last < capacity;
  if (negative || !inside)
    fail(call.op, "a view inside the storage of " + std::to_string(capacity) + " elements",
         "sizes " + to_string(sizes) + ", strides " + to_string(strides) + ", offset " +
             std::to_string(offset));
}

Outputs compose_as_strided(const Call& call) {
  const auto& sizes = call.attr<Dims>(0);
  const auto& strides = call.attr<Dims>(1);
  const int64_t self_offset = storage_offset_of(call.in[0]);
  const int64_t offset = call.has_attr(2) ? call.attr<int64_t>(2) : self_offset;
  if (sizes.rank() != strides.rank())
    fail(call.op, "one stride per size", to_string(sizes) + " and " + to_string(strides));
  require_within_storage(call, sizes, strides, offset);
  return detail::make_view(call.in[0], sizes, strides, offset - self_offset);
}

struct TransposedDims {
  int first;
  int second;
};
TransposedDims transposed_dims(const Call& call) {
  const int rank = call.in[0].dim();
  return {named_dim(call, rank), normalize_dim(call.op, call.attr<int64_t>(1), rank)};
}
Dims swapped(Dims dims, TransposedDims which) {
  if (dims.rank() > 0) std::swap(dims[which.first], dims[which.second]);
  return dims;
}

Outputs compose_t(const Call& call) {
  const Tensor& self = call.in[0];
  if (self.dim() > 2) fail(call.op, "at most 2 dimensions", to_string(self));
  return transpose(self, 0, self.dim() < 2 ? 0 : 1);
}

Outputs compose_view(const Call& call) {
  const Tensor& self = call.in[0];
  const Dims sizes = resolve_sizes(call.op, call.attr<Dims>(0), self.numel());
  const std::optional<Dims> strides = view_strides(self, sizes);
  if (!strides)
    fail(
        call.op, "sizes that the strides allow without a copy (reshape copies)",
        to_string(sizes) + " of " + to_string(self) + " with strides " + to_string(self.strides()));
  return detail::make_view(self, sizes, *strides);
}

Gradients view_vjp(const GradCall& g) { return {reshape(g.dout, g.in_meta[0].sizes)}; }

std::vector<Sample> view_samples() {
  return {{.in = {{.sizes = {3, 4}}}, .attrs = {Dims{2, 6}}},
          {.in = {{.sizes = {2, 3, 4}}}, .attrs = {Dims{6, -1}}},
          {.in = {{.sizes = {}}}, .attrs = {Dims{1, 1}}},
          {.in = {{.sizes = {5}}}, .attrs = {Dims{5}}},
          {.in = {{.sizes = {0, 3}}}, .attrs = {Dims{3, 0}}}};
}

constexpr OpDef view_op(std::string_view name, std::string_view doc) {
  return {.name = name,
          .schema = "(Tensor self, SymInt[] size)",
          .doc = doc,
          .kind = OpKind::view,
          .compose = compose_view,
          .flops = flops_per_element<0>,
          .bytes = no_bytes,
          .vjp = view_vjp,
          .reference = view_reference,
          .samples = view_samples};
}

// Sizes after expanding; -1 keeps a size.
Dims expanded_sizes(const Call& call) {
  const Dims& from = call.in[0].sizes();
  Dims to = call.attr<Dims>(0);
  const int added = to.rank() - from.rank();
  bool fits = added >= 0;
  for (int d = 0; d < to.rank() && fits; ++d) {
    if (d >= added && to[d] == -1) to[d] = from[d - added];
    fits = to[d] >= 0 && (d < added || from[d - added] == 1 || from[d - added] == to[d]);
  }
  if (!fits)
    fail(call.op, "sizes that " + to_string(from) + " broadcasts to",
         to_string(call.attr<Dims>(0)));
  return to;
}

}  // namespace

constinit const OpDef kAsStrided{
    .name = "aten::as_strided",
    .schema = "(Tensor self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None)",
    .doc = "a view of self's storage with any sizes, strides and offset",
    .kind = OpKind::view,
    .compose = compose_as_strided,
    .flops = flops_per_element<0>,
    .bytes = no_bytes,
    .reference =
        [](const Call& call) {
          const int64_t offset =
              call.has_attr(2) ? call.attr<int64_t>(2) - storage_offset_of(call.in[0]) : 0;
          gather_reference(call, call.attr<Dims>(1), offset);
        },
    .samples =
        [] {
          return std::vector<Sample>{
              {.in = {{.sizes = {3, 4}}}, .attrs = {Dims{4, 3}, Dims{1, 4}, int64_t{0}}},
              {.in = {{.sizes = {12}}}, .attrs = {Dims{2, 2}, Dims{3, 3}, int64_t{5}}},
              {.in = {{.sizes = {3}}}, .attrs = {Dims{2, 3}, Dims{0, 1}, Attr{}}},
              {.in = {{.sizes = {3}}}, .attrs = {Dims{}, Dims{}, int64_t{2}}}};
        }};

constinit const OpDef kTranspose{
    .name = "aten::transpose",
    .schema = "(Tensor self, int dim0, int dim1)",
    .doc = "a view with two dimensions swapped",
    .kind = OpKind::view,
    .compose = [](const Call& call) -> Outputs {
      const Tensor& self = call.in[0];
      const TransposedDims which = transposed_dims(call);
      return strided_view(self, swapped(self.sizes(), which), swapped(self.strides(), which));
    },
    .flops = flops_per_element<0>,
    .bytes = no_bytes,
    .vjp = [](const GradCall& g) -> Gradients {
      return {transpose(g.dout, g.attr<int64_t>(0), g.attr<int64_t>(1))};
    },
    .reference =
        [](const Call& call) {
          gather_reference(call, swapped(call.in[0].strides(), transposed_dims(call)), 0);
        },
    .samples =
        [] {
          const std::vector<Attr> last_two = {int64_t{-1}, int64_t{-2}};
          return std::vector<Sample>{
              {.in = {{.sizes = {3, 5}}}, .attrs = last_two},
              {.in = {{.sizes = {2, 3, 4}}}, .attrs = {int64_t{0}, int64_t{2}}},
              {.in = {{.sizes = {4}}}, .attrs = {int64_t{0}, int64_t{0}}},
              {.in = {{.sizes = {2, 0, 4}}}, .attrs = last_two}};
        }};

constinit const OpDef kT{
    .name = "aten::t",
    .schema = "(Tensor self)",
    .doc = "the transpose of a matrix; fewer dimensions stay as they are",
    .kind = OpKind::view,
    .compose = compose_t,
    .flops = flops_per_element<0>,
    .bytes = no_bytes,
    .vjp = [](const GradCall& g) -> Gradients { return {t(g.dout)}; },
    .reference =
        [](const Call& call) {
          const Tensor& self = call.in[0];
          gather_reference(call, swapped(self.strides(), {0, self.dim() - 1}), 0);
        },
    .samples =
        [] {
          return std::vector<Sample>{{.in = {{.sizes = {3, 5}}}},
                                     {.in = {{.sizes = {4}}}},
                                     {.in = {{.sizes = {}}}},
                                     {.in = {{.sizes = {0, 3}}}}};
        }};

constinit const OpDef kView = view_op(
    "aten::view", "a view with other sizes, where the strides allow it; one size may be -1");
constinit const OpDef kUnsafeView =
    view_op("aten::_unsafe_view", "view, of a tensor that nobody else holds");

constinit const OpDef kExpand{
    .name = "aten::expand",
    .schema = "(Tensor self, SymInt[] size, *, bool implicit=False)",
    .doc = "a view broadcast to larger sizes; -1 keeps a size",
    .kind = OpKind::view,
    .compose = [](const Call& call) -> Outputs {
      const Dims sizes = expanded_sizes(call);
      return strided_view(call.in[0], sizes, broadcast_strides(call.in[0], sizes));
    },
    .flops = flops_per_element<0>,
    .bytes = no_bytes,
    .vjp = [](const GradCall& g) -> Gradients { return {g.dout}; },  // the engine sums it
    .reference =
        [](const Call& call) {
          gather_reference(call, broadcast_strides(call.in[0], call.out[0].sizes()), 0);
        },
    .samples =
        [] {
          return std::vector<Sample>{{.in = {{.sizes = {3, 1}}}, .attrs = {Dims{3, 4}}},
                                     {.in = {{.sizes = {4}}}, .attrs = {Dims{2, 3, -1}}},
                                     {.in = {{.sizes = {}}}, .attrs = {Dims{5}}},
                                     {.in = {{.sizes = {1, 3}}}, .attrs = {Dims{0, 3}}}};
        }};

Tensor as_strided(const Tensor& self, Dims sizes, Dims strides,
                  std::optional<int64_t> storage_offset) {
  return run_op(kAsStrided, args(self),
                {sizes, strides, storage_offset ? Attr(*storage_offset) : Attr()});
}
Tensor t(const Tensor& self) { return run_op(kT, args(self)); }
Tensor transpose(const Tensor& self, int64_t dim0, int64_t dim1) {
  return run_op(kTranspose, args(self), {dim0, dim1});
}
Tensor view(const Tensor& self, Dims sizes) { return run_op(kView, args(self), {sizes}); }
Tensor unsafe_view(const Tensor& self, Dims sizes) {
  return run_op(kUnsafeView, args(self), {sizes});
}
Tensor expand(const Tensor& self, Dims sizes) { return run_op(kExpand, args(self), {sizes}); }
}  // namespace epilogue
