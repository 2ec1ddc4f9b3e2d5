// SPDX-License-Identifier: Apache-2.0
// Matrix products: mm, addmm, bmm, and matmul, which maps any ranks to them.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/tensor_impl.h"
#include "epilogue/ops.h"
#include "ops/ops.h"
#include "ops/reference.h"
#include "ops/run_op.h"

namespace epilogue {
namespace {

std::string pair(const Tensor& a, const Tensor& b) { return to_string(a) + " and " + to_string(b); }

void require_matrices(const Call& call, const Tensor& a, const Tensor& b, int rank) {
  require_same_dtype(call.op, a, b);
  if (a.dim() != rank || b.dim() != rank)
    fail(call.op, rank == 2 ? "two matrices" : "two batches of matrices", pair(a, b));
  if (a.sizes()[rank - 1] != b.sizes()[rank - 2])
    fail(call.op, "columns of the first equal to rows of the second", pair(a, b));
  if (rank == 3 && a.sizes()[0] != b.sizes()[0]) fail(call.op, "equal batch sizes", pair(a, b));
}

OutMetas infer_mm(const Call& call) {
  const Tensor& a = call.in[0];
  const Tensor& b = call.in[1];
  require_matrices(call, a, b, 2);
  return OutMeta{{a.sizes()[0], b.sizes()[1]}, a.dtype()};
}

OutMetas infer_addmm(const Call& call) {
  const Tensor& a = call.in[1];
  const Tensor& b = call.in[2];
  require_matrices(call, a, b, 2);
  require_same_dtype(call.op, call.in[0], a);
  const Dims sizes = {a.sizes()[0], b.sizes()[1]};
  if (call.in[0].dim() > 2 || !(broadcast_sizes(call.op, call.in[0].sizes(), sizes) == sizes))
    fail(call.op, "a bias that broadcasts to " + to_string(sizes), to_string(call.in[0]));
  for (const double scale : {call.attr<double>(0), call.attr<double>(1)})
    if (!is_floating(a.dtype()) && scale != std::floor(scale))
      fail(call.op, "an integer beta and alpha for integer tensors", std::to_string(scale));
  return OutMeta{sizes, a.dtype()};
}

OutMetas infer_bmm(const Call& call) {
  const Tensor& a = call.in[0];
  const Tensor& b = call.in[1];
  require_matrices(call, a, b, 3);
  return OutMeta{{a.sizes()[0], a.sizes()[1], b.sizes()[2]}, a.dtype()};
}

// out = beta * bias + alpha * a b on integers, which wrap (unsigned arithmetic does so by
// definition).
void integer_product_reference(const Tensor& a, const Tensor& b, const Tensor& out,
                               const Tensor* bias, double beta, double alpha) {
  const auto whole = [](double x) { return static_cast<uint64_t>(static_cast<int64_t>(x)); };
  const Elements ea(a);
  const Elements eb(b);
  const Elements result(out);
  const int64_t n = out.size(1);
  const int64_t k = a.size(1);
  for (int64_t i = 0; i < out.numel(); ++i) {
    uint64_t sum = 0;
    for (int64_t p = 0; p < k; ++p)
      sum += static_cast<uint64_t>(ea.get_int(i / n * k + p)) *
             static_cast<uint64_t>(eb.get_int(p * n + i % n));
    sum *= whole(alpha);
    if (bias != nullptr)
      sum += whole(beta) * static_cast<uint64_t>(Elements(*bias, out.sizes()).get_int(i));
    result.set_int(i, static_cast<int64_t>(sum));
  }
}

// out = beta * bias + alpha * a b, summed in double. A block of columns at a time, whose part of b
// is read once: each element's sum still runs over p in order.
void product_reference(const Tensor& a, const Tensor& b, const Tensor& out, const Tensor* bias,
                       double beta, double alpha) {
  if (!is_floating(out.dtype())) return integer_product_reference(a, b, out, bias, beta, alpha);
  const Elements ea(a);
  const Elements eb(b);
  const Elements result(out);
  const int64_t m = out.size(0);
  const int64_t n = out.size(1);
  const int64_t k = a.size(1);
  constexpr int64_t kColumns = 64;
  std::vector<double> part(static_cast<size_t>(k * kColumns));
  for (int64_t first = 0; first < n; first += kColumns) {
    const int64_t columns = std::min(kColumns, n - first);
    for (int64_t p = 0; p < k; ++p)
      for (int64_t j = 0; j < columns; ++j)
        part[static_cast<size_t>(p * kColumns + j)] = eb.at({p, first + j});
    for (int64_t i = 0; i < m; ++i) {
      double sums[kColumns] = {};
      for (int64_t p = 0; p < k; ++p) {
        const double x = ea.at({i, p});
        const double* row = &part[static_cast<size_t>(p * kColumns)];
        for (int64_t j = 0; j < columns; ++j) sums[j] += x * row[j];
      }
      for (int64_t j = 0; j < columns; ++j) {
        double sum = alpha * sums[j];
        // beta 0 leaves the bias unread: its NaNs do not spread.
        if (bias != nullptr && beta != 0)
          sum += beta * Elements(*bias, out.sizes()).at({i, first + j});
        result.set(i * n + first + j, sum);
      }
    }
  }
}

// The i-th matrix of a batch.
Tensor matrix(const Tensor& batch, int64_t i) {
  return detail::make_view(batch, {batch.sizes()[1], batch.sizes()[2]},
                           {batch.strides()[1], batch.strides()[2]}, i * batch.strides()[0]);
}

double product_flops(const Tensor& a, const Tensor& out) {
  return 2.0 * static_cast<double>(out.numel()) * static_cast<double>(a.sizes()[a.dim() - 1]);
}

bool is_column_major(const Tensor& m) {
  return m.sizes()[0] > 1 && m.strides()[0] == 1 && m.strides()[1] >= m.sizes()[0];
}

// Gradients of c = a b. A column-major b is a transposed weight: dout^T a comes out in the weight's
// own row-major layout, so that the leaf can keep it without a copy.
Tensor grad_of_first(const Tensor& dout, const Tensor& b) { return mm(dout, t(b)); }
Tensor grad_of_second(const Tensor& dout, const Tensor& a, const Tensor& b) {
  return is_column_major(b) ? t(mm(t(dout), a)) : mm(t(a), dout);
}

}  // namespace

constinit const OpDef kMm{
    .name = "aten::mm",
    .schema = "(Tensor self, Tensor mat2)",
    .doc = "matrix product [m,k] [k,n]",
    .infer = infer_mm,
    .flops = [](const Call& c) { return product_flops(c.in[0], c.out[0]); },
    .vjp = [](const GradCall& g) -> Gradients {
      return {g.needs[0] ? grad_of_first(g.dout, g.in[1]) : Tensor(),
              g.needs[1] ? grad_of_second(g.dout, g.in[0], g.in[1]) : Tensor()};
    },
    .saves = save_input(0) | save_input(1),
    .autocast = {AutocastRule::lower, AutocastRule::lower},
    .reference =
        [](const Call& c) { product_reference(c.in[0], c.in[1], c.out[0], nullptr, 0, 1); },
    .samples =
        [] {
          return std::vector<Sample>{{{{{5, 7}}, {{7, 3}}}},
                                     {{{{1, 4}}, {{4, 1}}}},
                                     {{{{33, 17}}, {{17, 65}}}},
                                     {{{{2, 0}}, {{0, 3}}}},
                                     {{{{0, 4}}, {{4, 3}}}}};
        }};

constinit const OpDef kAddmm{
    .name = "aten::addmm",
    .schema = "(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1)",
    .doc = "beta * self + alpha * mat1 mat2; self is added in the product's write-back",
    .infer = infer_addmm,
    .flops = [](const Call& c) { return product_flops(c.in[1], c.out[0]); },
    .vjp = [](const GradCall& g) -> Gradients {
      const auto beta = g.attr<double>(0);
      const auto alpha = g.attr<double>(1);
      auto scaled = [](const Tensor& x, double s) { return s == 1 ? x : mul(x, s); };
      return {g.needs[0] ? scaled(g.dout, beta) : Tensor(),
              g.needs[1] ? scaled(grad_of_first(g.dout, g.in[2]), alpha) : Tensor(),
              g.needs[2] ? scaled(grad_of_second(g.dout, g.in[1], g.in[2]), alpha) : Tensor()};
    },
    .saves = save_input(1) | save_input(2),
    .autocast = {AutocastRule::lower, AutocastRule::lower},
    .reference =
        [](const Call& c) {
          product_reference(c.in[1], c.in[2], c.out[0], &c.in[0], c.attr<double>(0),
                            c.attr<double>(1));
        },
    .samples =
        [] {
          return std::vector<Sample>{{{{{3}}, {{5, 7}}, {{7, 3}}}, {1.0, 1.0}},
                                     {{{{33, 65}}, {{33, 17}}, {{17, 65}}}, {0.5, 2.0}},
                                     {{{{}}, {{4, 6}}, {{6, 2}}}, {1.0, 1.0}},
                                     {{{{4, 1}}, {{4, 6}}, {{6, 2}}}, {2.0, -1.0}},
                                     {{{{2}}, {{4, 0}}, {{0, 2}}}, {1.0, 1.0}}};
        }};

constinit const OpDef kBmm{
    .name = "aten::bmm",
    .schema = "(Tensor self, Tensor mat2)",
    .doc = "batch of matrix products [b,m,k] [b,k,n]",
    .infer = infer_bmm,
    .flops = [](const Call& c) { return product_flops(c.in[0], c.out[0]); },
    .vjp = [](const GradCall& g) -> Gradients {
      return {g.needs[0] ? bmm(g.dout, transpose(g.in[1], 1, 2)) : Tensor(),
              g.needs[1] ? bmm(transpose(g.in[0], 1, 2), g.dout) : Tensor()};
    },
    .saves = save_input(0) | save_input(1),
    .autocast = {AutocastRule::lower, AutocastRule::lower},
    .reference =
        [](const Call& c) {
          for (int64_t i = 0; i < c.out[0].size(0); ++i)
            product_reference(matrix(c.in[0], i), matrix(c.in[1], i), matrix(c.out[0], i), nullptr,
                              0, 1);
        },
    .samples =
        [] {
          return std::vector<Sample>{{{{{2, 3, 5}}, {{2, 5, 4}}}}, {{{{3, 1, 2}}, {{3, 2, 1}}}}};
        }};

Tensor mm(const Tensor& self, const Tensor& mat2) { return run_op(kMm, args(self, mat2)); }
Tensor addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, double beta,
             double alpha) {
  return run_op(kAddmm, args(self, mat1, mat2), {beta, alpha});
}
Tensor bmm(const Tensor& self, const Tensor& mat2) { return run_op(kBmm, args(self, mat2)); }

namespace {

Dims leading(const Dims& sizes, int drop) {
  Dims d;
  for (int i = 0; i < sizes.rank() - drop; ++i) d.push_back(sizes[i]);
  return d;
}
Dims with(Dims dims, std::initializer_list<int64_t> more) {
  for (const int64_t d : more) dims.push_back(d);
  return dims;
}

// [..., k] x [k, n]: the leading dimensions are rows of one product.
Tensor folded_matmul(const Tensor& a, const Tensor& b) {
  const Tensor rows = reshape(a, {element_count(leading(a.sizes(), 1)), a.size(-1)});
  return unsafe_view(mm(rows, b), with(leading(a.sizes(), 1), {b.size(1)}));
}

Tensor batched_matmul(const OpDef& op, const Tensor& a, const Tensor& b) {
  const Dims batch = broadcast_sizes(op, leading(a.sizes(), 2), leading(b.sizes(), 2));
  const int64_t count = element_count(batch);
  auto batch_of = [&](const Tensor& x) {
    const Tensor e = expand(x, with(batch, {x.size(-2), x.size(-1)}));
    return reshape(e, {count, x.size(-2), x.size(-1)});
  };
  return unsafe_view(bmm(batch_of(a), batch_of(b)), with(batch, {a.size(-2), b.size(-1)}));
}

Outputs compose_matmul(const Call& call) {
  const Tensor& a = call.in[0];
  const Tensor& b = call.in[1];
  if (a.dim() == 0 || b.dim() == 0) fail(call.op, "tensors with dimensions", pair(a, b));
  require_same_dtype(call.op, a, b);
  if (a.size(-1) != b.size(b.dim() == 1 ? 0 : -2))
    fail(call.op, "inner sizes that agree", pair(a, b));
  if (a.dim() == 2 && b.dim() == 2) return mm(a, b);
  if (a.dim() == 1) {  // a row, whose dimension is dropped again
    const Tensor c = matmul(view(contiguous(a), {1, a.size(0)}), b);
    return reshape(c, b.dim() == 1 ? Dims{} : with(leading(b.sizes(), 2), {b.size(-1)}));
  }
  if (b.dim() == 1)
    return reshape(matmul(a, view(contiguous(b), {b.size(0), 1})), leading(a.sizes(), 1));
  return b.dim() == 2 ? folded_matmul(a, b) : batched_matmul(call.op, a, b);
}

}  // namespace

constinit const OpDef kMatmul{.name = "aten::matmul",
                              .schema = "(Tensor self, Tensor other)",
                              .doc = "torch.matmul: dispatches mm or bmm by rank",
                              .kind = OpKind::composite,
                              .compose = compose_matmul,
                              .autocast = {AutocastRule::lower, AutocastRule::lower},
                              .samples = [] {
                                return std::vector<Sample>{
                                    {{{{5, 7}}, {{7, 3}}}},   {{{{2, 3, 4}}, {{4, 5}}}},
                                    {{{{7}}, {{7}}}},         {{{{3, 4}}, {{4}}}},
                                    {{{{4}}, {{4, 3}}}},      {{{{2, 1, 3, 4}}, {{5, 4, 2}}}},
                                    {{{{3, 4}}, {{2, 4, 5}}}}};
                              }};

Tensor matmul(const Tensor& self, const Tensor& other) {
  return run_op(kMatmul, args(self, other));
}

}  // namespace epilogue
