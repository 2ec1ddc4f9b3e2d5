// SPDX-License-Identifier: Apache-2.0
// The table of pointwise functions, by function, number and op.
#pragma once

#include <optional>
#include <utility>

#include "pointwise/pointwise_table.h"

namespace epilogue {

inline constexpr size_t kPointwiseFns = kPointwiseTable.size();
using PointwiseFnSequence = std::make_index_sequence<kPointwiseFns>;

constexpr const PointwiseRow& pointwise_row(PointwiseFn fn) {
  return kPointwiseTable[static_cast<size_t>(fn)];
}
constexpr std::string_view pointwise_fn_name(PointwiseFn fn) { return pointwise_row(fn).name; }
constexpr size_t operand_count(PointwiseFn fn) { return pointwise_row(fn).operands; }
constexpr bool is_elementwise(PointwiseFn fn) {
  return pointwise_row(fn).kind == PointwiseKind::elementwise;
}
constexpr bool is_row_reduction(PointwiseFn fn) {
  return pointwise_row(fn).kind == PointwiseKind::row_reduction;
}

constexpr size_t parameter_count(const PointwiseRow& row) {
  size_t count = 0;
  while (count < row.parameters.size() && !row.parameters[count].name.empty()) ++count;
  return count;
}
constexpr PointwiseParameters default_parameters(PointwiseFn fn) {
  PointwiseParameters values = {};
  for (size_t i = 0; i < values.size(); ++i) values[i] = pointwise_row(fn).parameters[i].value;
  return values;
}

// The function's name where traces name its op: "gelu" of gelu_tanh. Its own where no op is it.
constexpr std::string_view op_base_name(PointwiseFn fn) {
  const PointwiseRow& row = pointwise_row(fn);
  constexpr std::string_view kPrefix = "aten::";
  return row.op.empty() ? row.name : row.op.substr(kPrefix.size());
}

// The function of that number, as traces have it.
std::optional<PointwiseFn> pointwise_fn_of_number(size_t number);
// The first row of an ATen op ("gelu_backward", no prefix); nullptr where none is it.
const PointwiseRow* pointwise_row_of_op(std::string_view base_name);

namespace detail {
consteval bool rows_are_in_order() {
  for (size_t i = 0; i < kPointwiseFns; ++i)
    if (static_cast<size_t>(kPointwiseTable[i].fn) != i) return false;
  return true;
}
}  // namespace detail
static_assert(detail::rows_are_in_order(), "row i describes enumerator i");

}  // namespace epilogue
