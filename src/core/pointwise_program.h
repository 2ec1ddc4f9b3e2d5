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

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace epilogue {

enum class PointwiseFn : uint8_t {
  // One operand.
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
  // Of one operand, over all columns of a row. row_max of NaN is NaN.
  row_sum,
  row_mean,
  row_max,
  // Of one operand, over all rows.
  column_sum,
  // a op b, or a op constant: add and sub scale the second operand by alpha.
  add,
  sub,
  mul,
  div,
  // a = dy, b = what the forward saved: its input, but for relu, sigmoid and tanh their output.
  relu_backward,
  sigmoid_backward,
  tanh_backward,
  gelu_tanh_backward,
  gelu_erf_backward,
  silu_backward,
};
std::string_view pointwise_fn_name(PointwiseFn fn);  // "gelu_tanh"
bool is_binary(PointwiseFn fn);
bool is_row_reduction(PointwiseFn fn);

inline constexpr int kConstantOperand = -1;

struct PointwiseStep {
  PointwiseFn fn = PointwiseFn::neg;
  int a = 0;                 // value; kConstantOperand: `constant`
  int b = kConstantOperand;  // of binary functions: value, or the constant
  float constant = 0;
  float alpha = 1;
  bool operator==(const PointwiseStep&) const = default;
};

struct PointwiseProgram {
  int inputs = 0;
  std::vector<PointwiseStep> steps;
  std::vector<int> outputs;  // values that are stored

  int values() const { return inputs + static_cast<int>(steps.size()); }
  bool operator==(const PointwiseProgram&) const = default;
};

// What a value is one number of.
enum class Extent : uint8_t { element, row, column };

// Of all values of a program without problems. Steps on rows' numbers alone give rows' numbers.
std::vector<Extent> extents(const PointwiseProgram& program);
// Of its outputs, in their order.
std::vector<Extent> output_extents(const PointwiseProgram& program);

// Whether it needs whole rows, or all of them.
bool has_row_reductions(const PointwiseProgram& program);
bool has_column_sums(const PointwiseProgram& program);

// What a program was expected to have: that a step reads a value that exists and is no column's,
// that elements alone are reduced, that outputs exist. Empty where all is well.
std::string_view problem_of(const PointwiseProgram& program);
// Throws Error where there is a problem.
void verify(const PointwiseProgram& program);

// "v2 = gelu_tanh(v0); v3 = mul(v2, v1); store v3".
std::string to_string(const PointwiseProgram& program);

}  // namespace epilogue
