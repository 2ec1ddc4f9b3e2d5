// SPDX-License-Identifier: Apache-2.0
// The pointwise functions, described once. SIMD kernels, CUDA kernels, ops, programs, passes and
// the reader of traces index this table: a new function is a row here and a formula at each of them
// (CONTRIBUTING.md has the recipe).
//
// Traces name functions by their numbers: rows are appended, never moved.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

namespace epilogue {

// In the order of the table; the names are spelled alike.
enum class PointwiseFn : uint8_t {
  neg,
  relu,
  sigmoid,
  tanh,
  exp,
  gelu_tanh,
  gelu_erf,
  silu,
  log,
  rsqrt,
  row_sum,
  row_mean,
  row_max,
  column_sum,
  add,
  sub,
  mul,
  div,
  relu_backward,
  sigmoid_backward,
  tanh_backward,
  gelu_tanh_backward,
  gelu_erf_backward,
  silu_backward,
};

inline constexpr size_t kMostPointwiseOperands = 3;
inline constexpr size_t kMostPointwiseParameters = 3;
// Values of a function's parameters, in the row's order; what is beyond its parameters is 0.
using PointwiseParameters = std::array<float, kMostPointwiseParameters>;

// A number that is the same for all elements. Parameter i is attribute i of the op.
struct PointwiseParameter {
  std::string_view name = {};
  float value = 0;  // where nothing is said
};

// elementwise: out[i] of operand elements i. row_reduction: one number of each row; row_max of NaN
// is NaN. column_sum: one number of each column.
enum class PointwiseKind : uint8_t { elementwise, row_reduction, column_sum };

// Of one element: a few arithmetic instructions, or an exponential and more.
enum class PointwiseCost : uint8_t { cheap, costly };

// What the function's gradient reads of its forward pass.
enum class PointwiseSaves : uint8_t { nothing, input, output };

// What its result holds. truth: 0 or 1, which an op gives as booleans.
enum class PointwiseResult : uint8_t { number, truth };

// The value that an attribute of the op must have for the op to be this function.
struct PointwiseForm {
  int attribute = -1;  // -1: the op has this form only
  double value = 0;
  const char* needs = nullptr;  // what calls of another form are told
};

struct PointwiseRow {
  PointwiseFn fn;
  std::string_view name;  // "gelu_tanh": in programs and kernel names
  size_t operands;        // tensors or constants
  std::array<PointwiseParameter, kMostPointwiseParameters> parameters = {};
  std::string_view op = {};  // ATen's, "aten::gelu"; empty: a part of other ops
  PointwiseForm form = {};
  int flops = 1;  // of one element
  PointwiseCost cost = PointwiseCost::cheap;
  PointwiseSaves saves = PointwiseSaves::nothing;
  PointwiseKind kind = PointwiseKind::elementwise;
  PointwiseResult result = PointwiseResult::number;
  bool has_condition = false;   // operand 0 is a truth value
  bool one_at_a_time = false;   // no vector form: for the few numbers that rows reduce to
  bool reads_constants = true;  // an operand may be a constant
};

inline constexpr std::array kPointwiseTable{
    PointwiseRow{.fn = PointwiseFn::neg, .name = "neg", .operands = 1, .op = "aten::neg"},
    PointwiseRow{.fn = PointwiseFn::relu,
                 .name = "relu",
                 .operands = 1,
                 .op = "aten::relu",
                 .saves = PointwiseSaves::output},
    PointwiseRow{.fn = PointwiseFn::sigmoid,
                 .name = "sigmoid",
                 .operands = 1,
                 .op = "aten::sigmoid",
                 .flops = 4,
                 .cost = PointwiseCost::costly,
                 .saves = PointwiseSaves::output},
    PointwiseRow{.fn = PointwiseFn::tanh,
                 .name = "tanh",
                 .operands = 1,
                 .op = "aten::tanh",
                 .cost = PointwiseCost::costly,
                 .saves = PointwiseSaves::output},
    PointwiseRow{.fn = PointwiseFn::exp,
                 .name = "exp",
                 .operands = 1,
                 .op = "aten::exp",
                 .cost = PointwiseCost::costly,
                 .saves = PointwiseSaves::output},
    PointwiseRow{.fn = PointwiseFn::gelu_tanh,
                 .name = "gelu_tanh",
                 .operands = 1,
                 .op = "aten::gelu",
                 .form = {0, 1, "needs the tanh form"},
                 .flops = 9,
                 .cost = PointwiseCost::costly,
                 .saves = PointwiseSaves::input},
    PointwiseRow{.fn = PointwiseFn::gelu_erf,
                 .name = "gelu_erf",
                 .operands = 1,
                 .op = "aten::gelu",
                 .form = {0, 0, "needs the exact form"},
                 .flops = 5,
                 .cost = PointwiseCost::costly,
                 .saves = PointwiseSaves::input},
    PointwiseRow{.fn = PointwiseFn::silu,
                 .name = "silu",
                 .operands = 1,
                 .op = "aten::silu",
                 .flops = 4,
                 .cost = PointwiseCost::costly,
                 .saves = PointwiseSaves::input},
    PointwiseRow{.fn = PointwiseFn::log,
                 .name = "log",
                 .operands = 1,
                 .cost = PointwiseCost::costly,
                 .one_at_a_time = true},
    PointwiseRow{.fn = PointwiseFn::rsqrt, .name = "rsqrt", .operands = 1, .flops = 2},
    PointwiseRow{.fn = PointwiseFn::row_sum,
                 .name = "row_sum",
                 .operands = 1,
                 .kind = PointwiseKind::row_reduction},
    PointwiseRow{.fn = PointwiseFn::row_mean,
                 .name = "row_mean",
                 .operands = 1,
                 .kind = PointwiseKind::row_reduction},
    PointwiseRow{.fn = PointwiseFn::row_max,
                 .name = "row_max",
                 .operands = 1,
                 .kind = PointwiseKind::row_reduction},
    PointwiseRow{.fn = PointwiseFn::column_sum,
                 .name = "column_sum",
                 .operands = 1,
                 .kind = PointwiseKind::column_sum},
    // a + alpha b, a - alpha b
    PointwiseRow{.fn = PointwiseFn::add,
                 .name = "add",
                 .operands = 2,
                 .parameters = {{{"alpha", 1}}},
                 .op = "aten::add"},
    PointwiseRow{.fn = PointwiseFn::sub,
                 .name = "sub",
                 .operands = 2,
                 .parameters = {{{"alpha", 1}}},
                 .op = "aten::sub"},
    PointwiseRow{.fn = PointwiseFn::mul,
                 .name = "mul",
                 .operands = 2,
                 .op = "aten::mul",
                 .saves = PointwiseSaves::input},
    PointwiseRow{.fn = PointwiseFn::div,
                 .name = "div",
                 .operands = 2,
                 .op = "aten::div",
                 .saves = PointwiseSaves::input},
    // Backward functions: of dy and of what the forward pass saved.
    PointwiseRow{.fn = PointwiseFn::relu_backward,
                 .name = "relu_backward",
                 .operands = 2,
                 .op = "aten::threshold_backward",
                 .form = {0, 0, "needs threshold 0"},
                 .reads_constants = false},
    PointwiseRow{.fn = PointwiseFn::sigmoid_backward,
                 .name = "sigmoid_backward",
                 .operands = 2,
                 .op = "aten::sigmoid_backward",
                 .flops = 3,
                 .reads_constants = false},
    PointwiseRow{.fn = PointwiseFn::tanh_backward,
                 .name = "tanh_backward",
                 .operands = 2,
                 .op = "aten::tanh_backward",
                 .flops = 3,
                 .reads_constants = false},
    PointwiseRow{.fn = PointwiseFn::gelu_tanh_backward,
                 .name = "gelu_tanh_backward",
                 .operands = 2,
                 .op = "aten::gelu_backward",
                 .form = {0, 1, "needs the tanh form"},
                 .flops = 18,
                 .cost = PointwiseCost::costly,
                 .reads_constants = false},
    PointwiseRow{.fn = PointwiseFn::gelu_erf_backward,
                 .name = "gelu_erf_backward",
                 .operands = 2,
                 .op = "aten::gelu_backward",
                 .form = {0, 0, "needs the exact form"},
                 .flops = 11,
                 .cost = PointwiseCost::costly,
                 .reads_constants = false},
    PointwiseRow{.fn = PointwiseFn::silu_backward,
                 .name = "silu_backward",
                 .operands = 2,
                 .op = "aten::silu_backward",
                 .flops = 9,
                 .cost = PointwiseCost::costly,
                 .reads_constants = false},
};
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
// Whether an ATen op ("gelu_backward", no prefix) is in the table.
bool is_pointwise_op(std::string_view base_name);

namespace detail {
consteval bool rows_are_in_order() {
  for (size_t i = 0; i < kPointwiseFns; ++i)
    if (static_cast<size_t>(kPointwiseTable[i].fn) != i) return false;
  return true;
}
}  // namespace detail
static_assert(detail::rows_are_in_order(), "row i describes enumerator i");

}  // namespace epilogue
