// SPDX-License-Identifier: Apache-2.0
#include "core/pointwise_program.h"

#include <algorithm>
#include <string_view>

#include "epilogue/base/error.h"

namespace epilogue {
namespace {

std::string value_name(int value, float constant) {
  if (value != kConstantOperand) return "v" + std::to_string(value);
  std::string text = std::to_string(constant);
  text.erase(text.find_last_not_of('0') + 1);
  return text.back() == '.' ? text + "0" : text;
}

bool is_column_sum(PointwiseFn fn) { return pointwise_row(fn).kind == PointwiseKind::column_sum; }

// The extent of a step's result, given the extents of the values before it.
Extent extent_of(const PointwiseStep& step, const std::vector<Extent>& known) {
  if (is_row_reduction(step.fn)) return Extent::row;
  if (is_column_sum(step.fn)) return Extent::column;
  const auto is_rows = [&](int v) {
    return v == kConstantOperand || known[static_cast<size_t>(v)] == Extent::row;
  };
  return std::ranges::all_of(step.values(), is_rows) ? Extent::row : Extent::element;
}

template <class Predicate>
bool any_step(const PointwiseProgram& program, Predicate&& is) {
  return std::any_of(program.steps.begin(), program.steps.end(),
                     [&](const PointwiseStep& step) { return is(step.fn); });
}

}  // namespace

bool has_row_reductions(const PointwiseProgram& program) {
  return any_step(program, is_row_reduction);
}
bool has_column_sums(const PointwiseProgram& program) { return any_step(program, is_column_sum); }

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
    const std::span<const int> operands = step.values();
    if (!std::ranges::all_of(operands, exists)) return "operands that were computed before";
    if (std::ranges::count(operands, kConstantOperand) == std::ssize(operands))
      return "at least one operand that is no constant";
    const auto is = [&](int v, Extent extent) {
      return v != kConstantOperand && known[static_cast<size_t>(v)] == extent;
    };
    if (std::ranges::any_of(operands, [&](int v) { return is(v, Extent::column); }))
      return "column sums to be stored only";
    if (!is_elementwise(step.fn) && !is(operands[0], Extent::element))
      return "reductions of elements";
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

namespace {

// "add(v0, v1, alpha=2)": parameters where they are not the table's.
std::string step_text(const PointwiseStep& step) {
  std::string text;
  for (const int v : step.values())
    text += (text.empty() ? "" : ", ") + value_name(v, step.constant);
  const PointwiseRow& row = pointwise_row(step.fn);
  for (size_t i = 0; i < parameter_count(row); ++i)
    if (step.parameters[i] != row.parameters[i].value)
      text += ", " + std::string(row.parameters[i].name) + "=" +
              value_name(kConstantOperand, step.parameters[i]);
  return std::string(row.name) + "(" + text + ")";
}

}  // namespace

std::string to_string(const PointwiseProgram& program) {
  std::string text;
  int value = program.inputs;
  for (const PointwiseStep& step : program.steps)
    text += "v" + std::to_string(value++) + " = " + step_text(step) + "; ";
  text += "store";
  for (const int output : program.outputs) text += " v" + std::to_string(output);
  return text;
}

}  // namespace epilogue
