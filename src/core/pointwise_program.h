// SPDX-License-Identifier: Apache-2.0
// A pointwise program: a chain of element-by-element steps as data. It runs alone, as the epilogue
// of a GEMM, or between the GEMMs of a row chain; backends execute it a tile at a time.
//
//   values   0 .. inputs-1      what is loaded: a GEMM's result, a bias row, another tensor
//            inputs + i         the result of step i
//
// Arithmetic is f32 throughout: intermediate results are not rounded to the tensors' dtypes, so a
// fused chain is at least as accurate as its ops one by one.
//
// A row reduction gives one number per row, which broadcasts back over the row where it meets
// elements: softmax and the norms are programs. A column sum gives one number per column and is
// only stored: the gradient of a bias beside that of the rows. Sums are f32, their order depends on
// the shape alone.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pointwise/pointwise_fn.h"

namespace epilogue {

inline constexpr int kConstantOperand = -1;

struct PointwiseStep {
  PointwiseFn fn = PointwiseFn::neg;
  // Values; kConstantOperand: `constant`. Entries beyond the function's operands are that too.
  std::array<int, kMostPointwiseOperands> operands = {kConstantOperand, kConstantOperand,
                                                      kConstantOperand};
  float constant = 0;
  PointwiseParameters parameters = {};  // the function's (pointwise_table.h)

  PointwiseStep() = default;
  // With the table's parameters.
  PointwiseStep(PointwiseFn function, int a, int b = kConstantOperand, float number = 0)
      : PointwiseStep(function, {a, b, kConstantOperand}, number) {}
  // With another first parameter: alpha of add and sub.
  PointwiseStep(PointwiseFn function, int a, int b, float number, float parameter)
      : PointwiseStep(function, a, b, number) {
    parameters[0] = parameter;
  }
  PointwiseStep(PointwiseFn function, std::array<int, kMostPointwiseOperands> values, float number)
      : fn(function),
        operands(values),
        constant(number),
        parameters(default_parameters(function)) {}

  // The operands that the function has.
  std::span<const int> values() const { return {operands.data(), operand_count(fn)}; }
  std::span<int> values() { return {operands.data(), operand_count(fn)}; }
  bool has_default_parameters() const { return parameters == default_parameters(fn); }
  bool operator==(const PointwiseStep&) const = default;
};

struct PointwiseProgram {
  int inputs = 0;
  std::vector<PointwiseStep> steps;
  std::vector<int> outputs;  // values that are stored

  int values() const { return inputs + static_cast<int>(steps.size()); }
  bool operator==(const PointwiseProgram&) const = default;
};

// The unit that a value has one number for.
enum class Extent : uint8_t { element, row, column };

// Extents of all values of a program without problems. Steps on rows' numbers alone give rows'
// numbers.
std::vector<Extent> extents(const PointwiseProgram& program);
// Extents of its outputs, in their order.
std::vector<Extent> output_extents(const PointwiseProgram& program);

// Whether it needs whole rows, or all of them.
bool has_row_reductions(const PointwiseProgram& program);
bool has_column_sums(const PointwiseProgram& program);

// The first thing that a program was expected to have and has not: that a step reads a value that
// exists and is no column's, that elements alone are reduced, that outputs exist. Empty where all
// is well.
std::string_view problem_of(const PointwiseProgram& program);
// Throws Error where there is a problem.
void verify(const PointwiseProgram& program);

// "v2 = gelu_tanh(v0); v3 = mul(v2, v1); store v3".
std::string to_string(const PointwiseProgram& program);

}  // namespace epilogue
