// SPDX-License-Identifier: Apache-2.0
// gather, self[..., index[...], ...] along one dimension, and scatter_add, which is its gradient.
#include "epilogue/ops.h"
#include "ops/indexing/indices.h"
#include "ops/ops.h"
#include "ops/reference.h"
#include "ops/run_op.h"
#include "ops/strided_view.h"

namespace epilogue {
namespace {

// No dimension but `dim` has more indices than elements.
void require_index_fits(const Call& call, const Tensor& index, const Tensor& t, int but) {
  bool fits = index.dim() == t.dim();
  for (int d = 0; d < index.dim() && fits; ++d) fits = d == but || index.sizes()[d] <= t.sizes()[d];
  if (!fits)
    fail(call.op, "an index of as many dimensions that is no larger than " + to_string(t),
         to_string(index));
}

OutMetas infer_gather(const Call& call) {
  require_index(call.op, call.in[1]);
  require_index_fits(call, call.in[1], call.in[0], named_dim(call, call.in[0].dim()));
  return OutMeta{call.in[1].sizes(), call.in[0].dtype()};
}

OutMetas infer_scatter_add(const Call& call) {
  require_index(call.op, call.in[1]);
  require_same_dtype(call.op, call.in[0], call.in[2]);
  if (call.in[0].dtype() == DType::boolean) fail(call.op, "numbers", to_string(call.in[0]));
  require_index_fits(call, call.in[1], call.in[0], named_dim(call, call.in[0].dim()));
  require_index_fits(call, call.in[1], call.in[2], -1);
  return infer_like_first(call);
}

void gather_elements(const Call& call) {
  const Tensor& self = call.in[0];
  const Tensor& index = call.in[1];
  const Tensor& out = call.out[0];
  const IndexedLines lines(call);
  const auto* at = static_cast<const int64_t*>(index.data());
  dispatch(self.dtype(), [&]<class T>() {
    for (int64_t l = 0; l < lines.count; ++l)
      for (int64_t i = 0; i < lines.n; ++i) {
        const int64_t k = checked_index(call.op, at[lines.offset(index, l) + i * lines.step(index)],
                                        lines.size(self));
        static_cast<T*>(out.data())[lines.offset(out, l) + i * lines.step(out)] =
            static_cast<const T*>(self.data())[lines.offset(self, l) + k * lines.step(self)];
      }
  });
}

// Sums in double (or i64), rounded once.
void scatter_add_reference(const Call& call) {
  const Tensor& self = call.in[0];
  const Tensor& index = call.in[1];
  const Tensor& source = call.in[2];
  const DType wide = is_floating(self.dtype()) ? DType::f64 : DType::i64;
  const Tensor sums = empty(self.sizes(), wide);
  copy_in_order(self, sums);
  const IndexedLines lines(call);
  const auto* at = static_cast<const int64_t*>(index.data());
  dispatch(wide, [&]<class Wide>() {
    dispatch(source.dtype(), [&]<class T>() {
      for (int64_t l = 0; l < lines.count; ++l)
        for (int64_t i = 0; i < lines.n; ++i) {
          const int64_t k = checked_index(
              call.op, at[lines.offset(index, l) + i * lines.step(index)], lines.size(sums));
          const T value = static_cast<const T*>(
              source.data())[lines.offset(source, l) + i * lines.step(source)];
          Wide& sum = static_cast<Wide*>(sums.data())[lines.offset(sums, l) + k * lines.step(sums)];
          sum = round_from_double<Wide>(widen(sum) + widen(value));
        }
    });
  });
  copy_in_order(sums, call.out[0]);
}

std::vector<Sample> gather_samples() {
  const auto index = [](Dims sizes, double n) { return SampleInput{sizes, 0, n, DType::i64}; };
  return {{{{{3, 5}}, index({3, 4}, 5)}, {int64_t{1}}},
          {{{{3, 5}}, index({7, 5}, 3)}, {int64_t{0}}},
          {{{{3, 5}}, index({2, 2}, 3)}, {int64_t{-2}}},
          {{{{2, 3, 4}}, index({2, 5, 3}, 3)}, {int64_t{1}}},
          {{{{67, 33}}, index({67, 20}, 33)}, {int64_t{-1}}},
          {{{{300, 140}}, index({300, 140}, 140)}, {int64_t{1}}},
          {{{{}}, index({}, 1)}, {int64_t{0}}},
          {{{{3, 5}}, index({0, 5}, 3)}, {int64_t{0}}}};
}
std::vector<Sample> scatter_samples() {
  std::vector<Sample> samples = gather_samples();
  for (Sample& s : samples) s.in.push_back({s.in[1].sizes});
  // A source with more than the index takes.
  samples.push_back({{{{3, 5}}, {{3, 4}, 0, 5, DType::i64}, {{4, 6}}}, {int64_t{1}}});
  return samples;
}

}  // namespace

constinit const OpDef kGather{
    .name = "aten::gather",
    .schema = "(Tensor self, int dim, Tensor index)",
    .doc = "the elements that an index names along a dimension, one per index",
    .infer = infer_gather,
    .flops = flops_per_element<0>,
    .bytes = indexed_bytes,
    .vjp = [](const GradCall& g) -> Gradients {
      const Tensor zero = zeros(g.in_meta[0].sizes, g.in_meta[0].dtype, g.dout.device());
      return {scatter_add(zero, g.attr<int64_t>(0), g.in[1], g.dout), Tensor()};
    },
    .saves = save_input(1),
    .reference = gather_elements,
    .samples = gather_samples};

constinit const OpDef kScatterAdd{
    .name = "aten::scatter_add",
    .schema = "(Tensor self, int dim, Tensor index, Tensor src)",
    .doc = "self with each element of src added where the index names it along a dimension",
    .infer = infer_scatter_add,
    .flops = [](const Call& call) { return static_cast<double>(call.in[1].numel()); },
    .vjp = [](const GradCall& g) -> Gradients {
      if (!g.needs[2]) return {g.dout, Tensor(), Tensor()};
      Tensor d = gather(g.dout, g.attr<int64_t>(0), g.in[1]);
      // Elements that the index does not reach have no gradient.
      const Dims& sizes = g.in_meta[2].sizes;
      for (int k = 0; k < sizes.rank(); ++k) {
        if (d.sizes()[k] == sizes[k]) continue;
        Dims rest = d.sizes();
        rest[k] = sizes[k] - d.sizes()[k];
        d = cat({d, zeros(rest, d.dtype(), d.device())}, k);
      }
      return {g.dout, Tensor(), d};
    },
    .saves = save_input(1),
    .reference = scatter_add_reference,
    .samples = scatter_samples};

Tensor gather(const Tensor& self, int64_t dim, const Tensor& index) {
  return run_op(kGather, args(self, index), {dim});
}
Tensor scatter_add(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  return run_op(kScatterAdd, args(self, index, src), {dim});
}

}  // namespace epilogue
