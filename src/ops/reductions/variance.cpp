// SPDX-License-Identifier: Apache-2.0
// var and std over any dimensions: sum (x - mean)^2 / (n - correction), and its root.
#include <cmath>
#include <vector>

#include "epilogue/ops.h"
#include "ops/ops.h"
#include "ops/reference.h"
#include "ops/run_op.h"

namespace epilogue {
namespace {

// Attributes of both: dim (empty: all), correction, keepdim.
Dims variance_dims(const Call& call) {
  return normalize_dims(call.op, call.attr<Dims>(0), call.in[0].dim());
}

int64_t count_of(const Dims& sizes, const Dims& dims) {
  int64_t n = 1;
  for (const int64_t d : dims) n *= sizes[static_cast<int>(d)];
  return n;
}

OutMetas infer_variance(const Call& call) {
  require_floating(call.op, call.in[0]);
  const Dims dims = variance_dims(call);
  return OutMeta{reduced_sizes(call.in[0].sizes(), dims, call.attr<bool>(2)), call.in[0].dtype()};
}

// Per element of the result, the sum of all that go into it of term(element, result's index).
template <class Term>
std::vector<double> sums_of(const Call& call, Term&& term) {
  const Dims& sizes = call.in[0].sizes();
  const Tensor shape = empty(reduced_sizes(sizes, variance_dims(call), true), DType::u8);
  const Dims strides = broadcast_strides(shape, sizes);
  std::vector<double> sums(static_cast<size_t>(call.out[0].numel()));
  const Elements in(call.in[0]);
  int64_t i = 0;
  for_each_offset(sizes, strides, [&](int64_t o) {
    sums[static_cast<size_t>(o)] += term(in.get(i++), static_cast<size_t>(o));
  });
  return sums;
}

template <bool kRoot>
void variance_reference(const Call& call) {
  const auto n = static_cast<double>(count_of(call.in[0].sizes(), variance_dims(call)));
  const std::vector<double> sums = sums_of(call, [](double x, size_t) { return x; });
  const std::vector<double> squares = sums_of(call, [&](double x, size_t o) {
    const double d = x - sums[o] / n;
    return d * d;
  });
  const Elements out(call.out[0]);
  const double divisor = std::fmax(0, n - call.attr<double>(1));
  for (size_t o = 0; o < squares.size(); ++o) {
    const double variance = n == 0 ? NAN : squares[o] / divisor;
    out.set(static_cast<int64_t>(o), kRoot ? std::sqrt(variance) : variance);
  }
}

// 2 (x - mean) / (n - correction) * d
Tensor variance_gradient(const GradCall& g, const OpDef& op, Tensor d) {
  const Dims& sizes = g.in_meta[0].sizes;
  const Dims dims = normalize_dims(op, g.attr<Dims>(0), sizes.rank());
  if (!g.attr<bool>(2)) d = reshape(d, reduced_sizes(sizes, dims, true));
  const auto n = static_cast<double>(count_of(sizes, dims));
  const Tensor centre = sizes.empty() ? g.in[0] : mean(g.in[0], dims, true);
  return mul(mul(sub(g.in[0], centre), d), 2 / std::fmax(0, n - g.attr<double>(1)));
}

double four_per_input(const Call& call) { return 4 * static_cast<double>(call.in[0].numel()); }

std::vector<Sample> variance_samples() {
  return {{{{{3, 5}}}, {Dims{}, 1.0, false}},     {{{{67, 33}}}, {Dims{1}, 1.0, false}},
          {{{{67, 33}}}, {Dims{0}, 0.0, true}},   {{{{4, 5, 6}}}, {Dims{0, 2}, 2.0, false}},
          {{{{4, 5, 6}}}, {Dims{-2}, 1.0, true}}, {{{{2, 9000}}}, {Dims{1}, 1.0, false}},
          {{{{3, 2, 5}}}, {Dims{1}, 0.5, false}}, {{{{20011}}}, {Dims{}, 1.0, false}},
          {{{{0, 3}}}, {Dims{1}, 1.0, false}},    {{{{}}}, {Dims{}, 0.0, false}}};
}
// A root of nothing has no slope.
std::vector<Sample> root_samples() {
  std::vector<Sample> list = variance_samples();
  list.pop_back();
  return list;
}

}  // namespace

constinit const OpDef kVar{
    .name = "aten::var",
    .schema = "(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False)",
    .doc = "sum of squared deviations over dimensions / (elements - correction)",
    .infer = infer_variance,
    .flops = four_per_input,
    .vjp = [](const GradCall& g) -> Gradients { return {variance_gradient(g, kVar, g.dout)}; },
    .saves = save_input(0),
    .reference = variance_reference<false>,
    .samples = variance_samples};

constinit const OpDef kStd{
    .name = "aten::std",
    .schema = "(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False)",
    .doc = "the root of aten::var",
    .infer = infer_variance,
    .flops = four_per_input,
    // d var = d std / (2 std), 0 where the deviation is.
    .vjp = [](const GradCall& g) -> Gradients {
      const Tensor d = div(g.dout, mul(g.out[0], 2));
      return {variance_gradient(g, kStd, where(eq(g.out[0], 0), 0, d))};
    },
    .saves = save_input(0) | kSaveOutput,
    .reference = variance_reference<true>,
    .samples = root_samples};

Tensor var(const Tensor& self, Dims dims, double correction, bool keepdim) {
  return run_op(kVar, args(self), {dims, correction, keepdim});
}
Tensor stddev(const Tensor& self, Dims dims, double correction, bool keepdim) {
  return run_op(kStd, args(self), {dims, correction, keepdim});
}

}  // namespace epilogue
