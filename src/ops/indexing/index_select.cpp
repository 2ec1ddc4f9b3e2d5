// SPDX-License-Identifier: Apache-2.0
// Whole slices by index: index_select and embedding; index_add and embedding_dense_backward, which
// are their gradients.
#include "epilogue/ops.h"
#include "ops/indexing/indices.h"
#include "ops/ops.h"
#include "ops/reductions/lines.h"
#include "ops/reference.h"
#include "ops/run_op.h"

namespace epilogue {
namespace {

void require_list(const Call& call, const Tensor& index) {
  require_index(call.op, index);
  if (index.dim() > 1) fail(call.op, "an index of at most 1 dimension", to_string(index));
}

OutMetas infer_select(const Call& call) {
  require_list(call, call.in[1]);
  const int dim = named_dim(call, call.in[0].dim());
  if (call.in[0].dim() == 0 && call.in[1].numel() != 1)
    fail(call.op, "one index into a tensor without dimensions", to_string(call.in[1]));
  return OutMeta{with_size(call.in[0].sizes(), dim, call.in[1].numel()), call.in[0].dtype()};
}

OutMetas infer_add(const Call& call) {
  const Tensor& self = call.in[0];
  const Tensor& source = call.in[2];
  require_list(call, call.in[1]);
  require_same_dtype(call.op, self, source);
  if (self.dtype() == DType::boolean) fail(call.op, "numbers", to_string(self));
  const Dims expected =
      with_size(self.sizes(), named_dim(call, call.in[0].dim()), call.in[1].numel());
  if (!(source.sizes() == expected) || (self.dim() == 0 && call.in[1].numel() != 1))
    fail(call.op, "a source of sizes " + to_string(expected), to_string(source));
  return infer_like_first(call);
}

OutMetas infer_embedding(const Call& call) {
  const Tensor& weight = call.in[0];
  require_index(call.op, call.in[1]);
  if (weight.dim() != 2) fail(call.op, "a weight [rows, columns]", to_string(weight));
  Dims sizes = call.in[1].sizes();
  sizes.push_back(weight.sizes()[1]);
  return OutMeta{sizes, weight.dtype()};
}

OutMetas infer_embedding_backward(const Call& call) {
  const Tensor& grad = call.in[0];
  require_floating(call.op, grad);
  require_index(call.op, call.in[1]);
  const auto rows = call.attr<int64_t>(0);
  if (rows < 0) fail(call.op, "0 or more weights", std::to_string(rows));
  Dims expected = call.in[1].sizes();
  expected.push_back(grad.dim() == 0 ? 0 : grad.size(-1));
  if (!(grad.sizes() == expected))
    fail(call.op, "a gradient of sizes " + to_string(expected), to_string(grad));
  return OutMeta{Dims{rows, grad.size(-1)}, grad.dtype()};
}

void select_reference(const Call& call) {
  const Tensor& self = call.in[0];
  const int dim = named_dim(call, call.in[0].dim());
  const Lines from(self.sizes(), dim);
  const Lines to(call.out[0].sizes(), dim);
  const Elements in(self);
  const Elements index(call.in[1]);
  const Elements out(call.out[0]);
  for (int64_t j = 0; j < to.n; ++j) {
    const int64_t k = checked_index(call.op, index.get_int(j), from.n);
    for (int64_t l = 0; l < to.count; ++l)
      out.copy(to.first(l) + j * to.step, in, from.first(l) + k * from.step);
  }
}

void embedding_reference(const Call& call) {
  const Tensor& weight = call.in[0];
  const int64_t columns = weight.sizes()[1];
  const Elements in(weight);
  const Elements index(call.in[1]);
  const Elements out(call.out[0]);
  for (int64_t j = 0; j < call.in[1].numel(); ++j) {
    const int64_t k = checked_index(call.op, index.get_int(j), weight.sizes()[0]);
    for (int64_t c = 0; c < columns; ++c) out.copy(j * columns + c, in, k * columns + c);
  }
}

// Sums in double (or i64), rounded once.
void index_add_reference(const Call& call) {
  const Tensor& self = call.in[0];
  const int dim = named_dim(call, call.in[0].dim());
  const Lines to(self.sizes(), dim);
  const Lines from(call.in[2].sizes(), dim);
  const Elements in(self);
  const Elements index(call.in[1]);
  const Elements source(call.in[2]);
  const Elements out(call.out[0]);
  const auto alpha = call.attr<double>(1);
  for (int64_t l = 0; l < to.count; ++l)
    for (int64_t k = 0; k < to.n; ++k) {
      const int64_t at = to.first(l) + k * to.step;
      double sum = is_floating(self.dtype()) ? in.get(at) : 0;
      int64_t whole = is_floating(self.dtype()) ? 0 : in.get_int(at);
      for (int64_t j = 0; j < from.n; ++j) {
        if (checked_index(call.op, index.get_int(j), to.n) != k) continue;
        const int64_t added = from.first(l) + j * from.step;
        if (is_floating(self.dtype())) {
          sum += alpha * source.get(added);
        } else {
          whole += static_cast<int64_t>(alpha) * source.get_int(added);
        }
      }
      if (is_floating(self.dtype())) {
        out.set(at, sum);
      } else {
        out.set_int(at, whole);
      }
    }
}

void embedding_backward_reference(const Call& call) {
  const auto rows = call.attr<int64_t>(0);
  const auto padding = call.attr<int64_t>(1);
  const int64_t columns = call.out[0].sizes()[1];
  const Elements grad(call.in[0]);
  const Elements index(call.in[1]);
  std::vector<double> sums(static_cast<size_t>(rows * columns));
  for (int64_t j = 0; j < call.in[1].numel(); ++j) {
    const int64_t k = checked_index(call.op, index.get_int(j), rows);
    if (k == padding) continue;
    for (int64_t c = 0; c < columns; ++c)
      sums[static_cast<size_t>(k * columns + c)] += grad.get(j * columns + c);
  }
  const Elements out(call.out[0]);
  for (size_t i = 0; i < sums.size(); ++i) out.set(static_cast<int64_t>(i), sums[i]);
}

SampleInput indices(Dims sizes, double n) { return {sizes, 0, n, DType::i64}; }

std::vector<Sample> select_samples() {
  return {{{{{5, 3}}, indices({4}, 5)}, {int64_t{0}}},
          {{{{5, 3}}, indices({7}, 3)}, {int64_t{-1}}},
          {{{{2, 5, 3}}, indices({6}, 5)}, {int64_t{1}}},
          {{{{5, 3}}, indices({}, 5)}, {int64_t{0}}},
          {{{{300, 140}}, indices({290}, 300)}, {int64_t{0}}},
          {{{{}}, indices({1}, 1)}, {int64_t{0}}},
          {{{{5, 3}}, indices({0}, 5)}, {int64_t{0}}}};
}
std::vector<Sample> add_samples() {
  return {{{{{5, 3}}, indices({4}, 5), {{4, 3}}}, {int64_t{0}, 1.0}},
          {{{{5, 3}}, indices({7}, 3), {{5, 7}}}, {int64_t{-1}, 2.0}},
          {{{{2, 5, 3}}, indices({6}, 5), {{2, 6, 3}}}, {int64_t{1}, 1.0}},
          {{{{9, 130}}, indices({300}, 9), {{300, 130}}}, {int64_t{0}, 1.0}},
          {{{{5, 3}}, indices({0}, 5), {{0, 3}}}, {int64_t{0}, 1.0}}};
}
std::vector<Sample> embedding_samples() {
  const int64_t none = -1;
  return {{{{{5, 3}}, indices({4}, 5)}, {none}},
          // The gradient of the row of padding_idx is not the derivative: it is not named here.
          {{{{5, 3}}, indices({2, 3}, 4)}, {int64_t{4}}},
          {{{{5, 3}}, indices({}, 5)}, {none}},
          {{{{301, 130}}, indices({3, 97}, 301)}, {none}},
          {{{{5, 3}}, indices({0}, 5)}, {none}}};
}
std::vector<Sample> embedding_backward_samples() {
  const int64_t none = -1;
  return {{{{{4, 3}}, indices({4}, 5)}, {int64_t{5}, none}},
          {{{{2, 3, 3}}, indices({2, 3}, 5)}, {int64_t{5}, int64_t{2}}},
          {{{{3, 97, 130}}, indices({3, 97}, 31)}, {int64_t{31}, none}},
          {{{{3}}, indices({}, 5)}, {int64_t{5}, none}}};
}

}  // namespace

constinit const OpDef kIndexSelect{
    .name = "aten::index_select",
    .schema = "(Tensor self, int dim, Tensor index)",
    .doc = "the slices of a dimension that an index names",
    .infer = infer_select,
    .flops = flops_per_element<0>,
    .bytes = indexed_bytes,
    .vjp = [](const GradCall& g) -> Gradients {
      const Tensor zero = zeros(g.in_meta[0].sizes, g.in_meta[0].dtype, g.dout.device());
      return {index_add(zero, g.attr<int64_t>(0), g.in[1], g.dout), Tensor()};
    },
    .saves = save_input(1),
    .reference = select_reference,
    .samples = select_samples};

constinit const OpDef kIndexAdd{
    .name = "aten::index_add",
    .schema = "(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1)",
    .doc = "self with each slice of source, times alpha, added where the index names it",
    .infer = infer_add,
    .flops = [](const Call& call) { return 2 * static_cast<double>(call.in[2].numel()); },
    .vjp = [](const GradCall& g) -> Gradients {
      if (!g.needs[2]) return {g.dout, Tensor(), Tensor()};
      const Tensor d = index_select(g.dout, g.attr<int64_t>(0), g.in[1]);
      const auto alpha = g.attr<double>(1);
      return {g.dout, Tensor(), alpha == 1 ? d : mul(d, alpha)};
    },
    .saves = save_input(1),
    .reference = index_add_reference,
    .samples = add_samples};

constinit const OpDef kEmbedding{
    .name = "aten::embedding",
    .schema = "(Tensor weight, Tensor indices, SymInt padding_idx=-1)",
    .doc = "the rows of a weight that indices name; that of padding_idx gets no gradient",
    .infer = infer_embedding,
    .flops = flops_per_element<0>,
    .bytes = indexed_bytes,
    .vjp = [](const GradCall& g) -> Gradients {
      return {run_op(kEmbeddingDenseBackward, args(g.dout, g.in[1]),
                     {g.in_meta[0].sizes[0], g.attrs[0]}),
              Tensor()};
    },
    .saves = save_input(1),
    .reference = embedding_reference,
    .samples = embedding_samples};

constinit const OpDef kEmbeddingDenseBackward{
    .name = "aten::embedding_dense_backward",
    .schema = "(Tensor grad_output, Tensor indices, SymInt num_weights, SymInt padding_idx)",
    .doc = "rows of grad_output summed by index, in their order; 0 for padding_idx",
    .infer = infer_embedding_backward,
    .flops = [](const Call& call) { return static_cast<double>(call.in[0].numel()); },
    .vjp = [](const GradCall& g) -> Gradients {
      const auto padding = g.attr<int64_t>(1);
      const Tensor d = embedding(g.dout, g.in[1]);
      if (padding < 0) return {d, Tensor()};
      return {masked_fill(d, unsqueeze(eq(g.in[1], static_cast<double>(padding)), -1), 0),
              Tensor()};
    },
    .saves = save_input(1),
    .reference = embedding_backward_reference,
    .samples = embedding_backward_samples};

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  return run_op(kIndexSelect, args(self, index), {dim});
}
Tensor index_add(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                 double alpha) {
  return run_op(kIndexAdd, args(self, index, source), {dim, alpha});
}
Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t padding_idx) {
  return run_op(kEmbedding, args(weight, indices), {padding_idx});
}

}  // namespace epilogue
