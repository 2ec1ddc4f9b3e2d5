// SPDX-License-Identifier: Apache-2.0
#include "core/pointwise_program.h"

#include <array>
#include <string_view>

#include "epilogue/base/error.h"

namespace epilogue {
namespace {

constexpr std::array<std::string_view, 18> kNames = {"neg",
                                                     "relu",
                                                     "sigmoid",
                                                     "tanh",
                                                     "exp",
                                                     "gelu_tanh",
                                                     "gelu_erf",
                                                     "silu",
                                                     "add",
                                                     "sub",
                                                     "mul",
                                                     "div",
                                                     "relu_backward",
                                                     "sigmoid_backward",
                                                     "tanh_backward",
                                                     "gelu_tanh_backward",
                                                     "gelu_erf_backward",
                                                     "silu_backward"};

std::string value_name(int value, float constant) {
  if (value != kConstantOperand) return "v" + std::to_string(value);
  std::string text = std::to_string(constant);
  text.erase(text.find_last_not_of('0') + 1);
  return text.back() == '.' ? text + "0" : text;
}

}  // namespace

std::string_view pointwise_fn_name(PointwiseFn fn) { return kNames[static_cast<size_t>(fn)]; }
bool is_binary(PointwiseFn fn) { return fn >= PointwiseFn::add; }

void verify(const PointwiseProgram& program) {
  const auto require = [](bool condition, const char* what) {
    if (!condition) throw Error(std::string("[pointwise program] expected ") + what);
  };
  require(program.inputs >= 0 && !program.outputs.empty(), "at least one output");
  int known = program.inputs;
  for (const PointwiseStep& step : program.steps) {
    const auto exists = [&](int v) { return v == kConstantOperand || (v >= 0 && v < known); };
    require(exists(step.a), "operands that were computed before");
    require(!is_binary(step.fn) || exists(step.b), "operands that were computed before");
    require(step.a != kConstantOperand || (is_binary(step.fn) && step.b != kConstantOperand),
            "at least one operand that is no constant");
    ++known;
  }
  for (const int output : program.outputs)
    require(output >= 0 && output < known, "outputs that exist");
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
