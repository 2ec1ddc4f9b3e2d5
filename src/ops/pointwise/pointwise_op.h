// SPDX-License-Identifier: Apache-2.0
// The op of a row of the table of functions. Meaning<fn> says what the table does not: schema, doc,
// the formula in double, the gradient. The rest follows from the row.
#pragma once

#include <cmath>

#include "ops/pointwise/pointwise.h"
#include "ops/reference.h"
#include "ops/run_op.h"
#include "ops/shape.h"

namespace epilogue {

// Members that have no default below: doc, value(operands..., parameters...).
template <PointwiseFn kFn>
struct Meaning;

inline OutMetas infer_floating(const Call& call) {
  for (const Tensor& t : call.in) require_floating(call.op, t);
  return call.in.size() == 1 ? infer_unary(call) : infer_binary(call);
}
inline OutMetas infer_numbers(const Call& call) {
  if (call.in[0].dtype() == DType::boolean) fail(call.op, "numbers", to_string(call.in[0]));
  return infer_unary(call);
}

inline double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

// Samples of one and of two inputs, drawn from [low, high); `attrs` of each. The second input has
// a range of its own.
struct SampleRange {
  double low = -2;
  double high = 2;
};
std::vector<Sample> unary_samples(const std::vector<Attr>& attrs = {}, SampleRange x = {});
std::vector<Sample> binary_samples(const std::vector<Attr>& attrs = {}, SampleRange b = {});

// Shared by most functions of one operand, and by most backward functions (dy, saved).
struct UnaryMeaning {
  static constexpr std::string_view schema = "(Tensor self)";
  static constexpr auto infer = infer_floating;
  static constexpr std::array<AutocastRule, 2> autocast = {};
  static std::vector<Sample> samples() { return unary_samples(); }
};
struct BinaryMeaning {
  static constexpr std::string_view schema = "(Tensor grad_output, Tensor self)";
  static constexpr auto infer = infer_floating;
  static constexpr std::array<AutocastRule, 2> autocast = {};
  static std::vector<Sample> samples() { return binary_samples(); }
};

namespace detail {

constexpr uint32_t saves_of(const PointwiseRow& row) {
  if (row.saves == PointwiseSaves::output) return kSaveOutput;
  uint32_t inputs = 0;
  for (size_t i = 0; i < row.operands; ++i) inputs |= save_input(static_cast<int>(i));
  return row.saves == PointwiseSaves::input ? inputs : 0;
}

// The reference: the formula of every element, with parameters as the call has them.
template <PointwiseFn kFn, size_t... kParameter>
void function_reference(const Call& call, std::index_sequence<kParameter...>) {
  constexpr PointwiseRow kRow = pointwise_row(kFn);
  const std::array<double, kMostPointwiseParameters> p = {
      (kParameter < call.attrs.size() ? number_of(call.attrs[kParameter]) : std::nullopt)
          .value_or(static_cast<double>(kRow.parameters[kParameter].value))...};
  pointwise_reference<kRow.operands>(
      call, [&](auto... x) { return Meaning<kFn>::value(x..., p[kParameter]...); });
}

}  // namespace detail

template <PointwiseFn kFn>
constexpr OpDef pointwise_op() {
  using M = Meaning<kFn>;
  constexpr PointwiseRow kRow = pointwise_row(kFn);
  return {.name = kRow.op,
          .schema = M::schema,
          .doc = M::doc,
          .pointwise = true,
          .infer = M::infer,
          .flops = flops_per_element<kRow.flops>,
          .vjp = kRow.result == PointwiseResult::truth ? nullptr : M::gradient,
          .saves = detail::saves_of(kRow),
          .autocast = M::autocast,
          .reference =
              [](const Call& call) {
                detail::function_reference<kFn>(
                    call, std::make_index_sequence<parameter_count(pointwise_row(kFn))>());
              },
          .samples = M::samples};
}

// The ops of kCount rows from kFirst on.
template <PointwiseFn kFirst, size_t kCount>
constexpr std::array<OpDef, kCount> pointwise_ops() {
  return []<size_t... k>(std::index_sequence<k...>) {
    constexpr auto kStart = static_cast<size_t>(kFirst);
    return std::array<OpDef, kCount>{pointwise_op<kPointwiseTable[kStart + k].fn>()...};
  }
  (std::make_index_sequence<kCount>());
}

}  // namespace epilogue
