// SPDX-License-Identifier: Apache-2.0
// sum and mean over any dimensions.
#include <vector>

#include "epilogue/ops.h"
#include "ops/ops.h"
#include "ops/reference.h"
#include "ops/run_op.h"

namespace epilogue {
namespace {

// Attributes of both: dim (empty: all), keepdim, dtype of sum and result (absent: the input's).
Dims dims_of(const Call& call) {
  return normalize_dims(call.op, call.attr<Dims>(0), call.in[0].dim());
}

OutMeta reduced(const Call& call, DType dtype) {
  return {reduced_sizes(call.in[0].sizes(), dims_of(call), call.attr<bool>(1)), dtype};
}

OutMetas infer_sum(const Call& call) {
  const DType own = call.in[0].dtype();
  const DType natural = is_floating(own) ? own : DType::i64;
  return reduced(call, call.has_attr(2) ? call.attr<DType>(2) : natural);
}

OutMetas infer_mean(const Call& call) {
  const DType dtype = call.has_attr(2) ? call.attr<DType>(2) : call.in[0].dtype();
  if (!is_floating(dtype))
    fail(call.op, "a floating input or dtype",
         to_string(call.in[0]) + " and dtype " + std::string(dtype_name(dtype)));
  return reduced(call, dtype);
}

// How many elements go into one result.
int64_t reduced_count(const Dims& sizes, const Dims& dims) {
  int64_t n = 1;
  for (const int64_t d : dims) n *= sizes[static_cast<int>(d)];
  return n;
}

// Strides that map an input element to the index of the result that it belongs to.
Dims result_strides(const Dims& sizes, const Dims& dims) {
  Dims strides = Dims::filled(sizes.rank(), 1);
  for (const int64_t d : dims) strides[static_cast<int>(d)] = 0;
  int64_t step = 1;
  for (int d = sizes.rank() - 1; d >= 0; --d) {
    if (strides[d] == 0) continue;
    strides[d] = step;
    step *= sizes[d];
  }
  return strides;
}

template <class Number>
std::vector<Number> sums(const Call& call) {
  std::vector<Number> sum(static_cast<size_t>(call.out[0].numel()));
  const Elements in(call.in[0]);
  int64_t i = 0;
  for_each_offset(call.in[0].sizes(), result_strides(call.in[0].sizes(), dims_of(call)),
                  [&](int64_t o) {
                    Number& s = sum[static_cast<size_t>(o)];
                    if constexpr (std::is_same_v<Number, double>) {
                      s += in.get(i++);
                    } else {
                      s += in.get_int(i++);
                    }
                  });
  return sum;
}

void sum_reference(const Call& call) {
  const Elements out(call.out[0]);
  int64_t i = 0;
  if (is_floating(call.out[0].dtype())) {
    for (const double s : sums<double>(call)) out.set(i++, s);
  } else {
    for (const int64_t s : sums<int64_t>(call)) out.set_int(i++, s);
  }
}

void mean_reference(const Call& call) {
  const Elements out(call.out[0]);
  const auto n = static_cast<double>(reduced_count(call.in[0].sizes(), dims_of(call)));
  int64_t i = 0;
  for (const double s : sums<double>(call)) out.set(i++, s / n);
}

// The gradient of a sum: dout, repeated along what was summed. `count` divides it (mean).
Gradients spread(const GradCall& g, const OpDef& op, bool is_mean) {
  const Dims& sizes = g.in_meta[0].sizes;
  const Dims dims = normalize_dims(op, g.attr<Dims>(0), sizes.rank());
  Tensor d = to(g.dout, g.in_meta[0].dtype);
  if (is_mean) d = div(d, static_cast<double>(reduced_count(sizes, dims)));
  if (d.dim() != 0 && !g.attr<bool>(1)) d = reshape(d, reduced_sizes(sizes, dims, true));
  return {expand(d, sizes)};
}

double one_per_input(const Call& call) { return static_cast<double>(call.in[0].numel()); }

std::vector<Sample> reduction_samples() {
  const Attr none;
  return {{{{{3, 5}}}, {Dims{}, false, none}},
          {{{{67, 33}}}, {Dims{1}, false, none}},
          {{{{67, 33}}}, {Dims{0}, true, none}},
          {{{{4, 5, 6}}}, {Dims{0, 2}, false, none}},
          {{{{4, 5, 6}}}, {Dims{1}, true, none}},
          {{{{3, 1, 7}}}, {Dims{-1, 0}, false, none}},
          {{{{}}}, {Dims{}, false, none}},
          {{{{5, 1}}}, {Dims{-1}, false, none}},
          {{{{2, 700}}}, {Dims{}, true, DType::f64}},
          {{{{0, 3}}}, {Dims{1}, false, none}},
          {{{{1031}}}, {Dims{0}, false, none}}};
}
std::vector<Sample> sum_samples() {
  std::vector<Sample> samples = reduction_samples();
  samples.push_back({{{{0, 3}}}, {Dims{0}, false, Attr()}});
  return samples;
}

}  // namespace

constinit const OpDef kSum{
    .name = "aten::sum",
    .schema = "(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None)",
    .doc = "sum over dimensions; integers sum to i64",
    .infer = infer_sum,
    .flops = one_per_input,
    .vjp = [](const GradCall& g) { return spread(g, kSum, false); },
    .autocast = {AutocastRule::none, AutocastRule::f32_result},
    .autocast_attr = 2,
    .reference = sum_reference,
    .samples = sum_samples};

constinit const OpDef kMean{
    .name = "aten::mean",
    .schema = "(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None)",
    .doc = "sum over dimensions / number of elements; NaN over nothing",
    .infer = infer_mean,
    .flops =
        [](const Call& call) {
          return static_cast<double>(call.in[0].numel() + call.out[0].numel());
        },
    .vjp = [](const GradCall& g) { return spread(g, kMean, true); },
    .reference = mean_reference,
    .samples = reduction_samples};

Tensor sum(const Tensor& self, Dims dims, bool keepdim, std::optional<DType> dtype) {
  return run_op(kSum, args(self), {dims, keepdim, dtype ? Attr(*dtype) : Attr()});
}
Tensor mean(const Tensor& self, Dims dims, bool keepdim, std::optional<DType> dtype) {
  return run_op(kMean, args(self), {dims, keepdim, dtype ? Attr(*dtype) : Attr()});
}

}  // namespace epilogue
