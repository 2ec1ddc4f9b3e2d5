// SPDX-License-Identifier: Apache-2.0
// A row of the table of pointwise functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace epilogue {

enum class PointwiseFn : uint8_t;  // pointwise_table.h: one for each row

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

// The cost of one element: a few arithmetic instructions, or an exponential and more.
enum class PointwiseCost : uint8_t { cheap, costly };

// The part of its forward pass that the function's gradient reads.
enum class PointwiseSaves : uint8_t { nothing, input, output };

// The meaning of its result. truth: 0 or 1, which an op gives as booleans.
enum class PointwiseResult : uint8_t { number, truth };

// The value that an attribute of the op must have for the op to be this function.
struct PointwiseForm {
  int attribute = -1;  // -1: the op has this form only
  double value = 0;
  const char* needs = nullptr;  // the error's text for calls of another form
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
  bool has_condition = false;  // operand 0 is a truth value
  bool one_at_a_time = false;  // no vector form: for the few numbers that rows reduce to
};

}  // namespace epilogue
