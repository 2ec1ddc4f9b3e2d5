// SPDX-License-Identifier: Apache-2.0
#include "core/pointwise_program.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "epilogue/base/error.h"

namespace epilogue {
namespace {

constexpr auto kNames = std::to_array<std::string_view>({
    "neg",
    "relu",
    "sigmoid",
    "tanh",
    "exp",
    "gelu_tanh",
    "gelu_erf",
    "silu",
    "log",
    "rsqrt",
    "row_sum",
    "row_mean",
    "row_max",
    "column_sum",
    "add",
    "sub",
    "mul",
    "div",
    "relu_backward",
    "sigmoid_backward",
    "tanh_backward",
    "gelu_tanh_backward",
    "gelu_erf_backward",
    "silu_backward",
});
static_assert(kNames.size() == static_cast<size_t>(PointwiseFn::silu_backward) + 1);

std::string value_name(int value, float constant) {
  if (value != kConstantOperand) return "v" + std::to_string(value);
  std::string text = std::to_string(constant);
  text.erase(text.find_last_not_of('0') + 1);
  return text.back() == '.' ? text + "0" : text;
}

bool is_reduction(PointwiseFn fn) { return is_row_reduction(fn) || fn == PointwiseFn::column_sum; }

// Of a step's result, given the extents of the values before it.
Extent extent_of(const PointwiseStep& step, const std::vector<Extent>& known) {
  if (is_row_reduction(step.fn)) return Extent::row;
  if (step.fn == PointwiseFn::column_sum) return Extent::column;
  const auto is_rows = [&](int v) {
    return v == kConstantOperand || known[static_cast<size_t>(v)] == Extent::row;
  };
  return is_rows(step.a) && (!is_binary(step.fn) || is_rows(step.b)) ? Extent::row
                                                                     : Extent::element;
}

template <class Predicate>
bool any_step(const PointwiseProgram& program, Predicate&& is) {
  return std::any_of(program.steps.begin(), program.steps.end(),
                     [&](const PointwiseStep& step) { return is(step.fn); });
}

}  // namespace

std::string_view pointwise_fn_name(PointwiseFn fn) { return kNames[static_cast<size_t>(fn)]; }
bool is_binary(PointwiseFn fn) { return fn >= PointwiseFn::add; }
bool is_row_reduction(PointwiseFn fn) {
  return fn >= PointwiseFn::row_sum && fn <= PointwiseFn::row_max;
}

bool has_row_reductions(const PointwiseProgram& program) {
  return any_step(program, is_row_reduction);
}
bool has_column_sums(const PointwiseProgram& program) {
  return any_step(program, [](PointwiseFn fn) { return fn == PointwiseFn::column_sum; });
}

std::vector<Extent> extents(const PointwiseProgram& program) {
  std::vector<Extent> list(static_cast<size_t>(program.inputs), Extent::element);
  for (const PointwiseStep& step : program.steps) list.push_back(extent_of(step, list));
  return list;
}

std::vector<Extent> output_extents(const PointwiseProgram& program) {
  const std::vector<Extent> all = extents(program);
  std::vector<Extent> list;
  list.reserve(program.outputs.size());
  for (const int output : program.outputs) list.push_back(all[static_cast<size_t>(output)]);
  return list;
}

std::string_view problem_of(const PointwiseProgram& program) {
  if (program.inputs < 0 || program.outputs.empty()) return "at least one output";
  std::vector<Extent> known(static_cast<size_t>(program.inputs), Extent::element);
  const auto exists = [&](int v) {
    return v == kConstantOperand || (v >= 0 && static_cast<size_t>(v) < known.size());
  };
  for (const PointwiseStep& step : program.steps) {
    const bool reads_b = is_binary(step.fn);
    if (!exists(step.a) || (reads_b && !exists(step.b)))
      return "operands that were computed before";
    if (step.a == kConstantOperand && (!reads_b || step.b == kConstantOperand))
      return "at least one operand that is no constant";
    const auto is = [&](int v, Extent extent) {
      return v != kConstantOperand && known[static_cast<size_t>(v)] == extent;
    };
    if (is(step.a, Extent::column) || (reads_b && is(step.b, Extent::column)))
      return "column sums to be stored only";
    if (is_reduction(step.fn) && !is(step.a, Extent::element)) return "reductions of elements";
    known.push_back(extent_of(step, known));
  }
  for (const int output : program.outputs)
    if (output == kConstantOperand || !exists(output)) return "outputs that exist";
  return {};
}

void verify(const PointwiseProgram& program) {
  if (const std::string_view problem = problem_of(program); !problem.empty())
    throw Error("[pointwise program] expected " + std::string(problem));
}

std::string to_string(const PointwiseProgram& program) {
  std::string text;
  int value = program.inputs;
  for (const PointwiseStep& step : program.steps) {
    text += "v" + std::to_string(value++) + " = " + std::string(pointwise_fn_name(step.fn)) + "(" +
            value_name(step.a, step.constant);
    if (is_binary(step.fn)) text += ", " + value_name(step.b, step.constant);
    if (step.alpha != 1) text += ", alpha=" + value_name(kConstantOperand, step.alpha);
    text += "); ";
  }
  text += "store";
  for (const int output : program.outputs) text += " v" + std::to_string(output);
  return text;
}

}  // namespace epilogue
