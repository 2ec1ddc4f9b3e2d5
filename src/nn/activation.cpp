// SPDX-License-Identifier: Apache-2.0
// Names of activations and norms, and the functions behind the activations.
#include "nn/activation.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "epilogue/ops.h"
#include "ops/pointwise/pointwise.h"

namespace epilogue::nn {
namespace {

// The form of what a value, or a gate, goes through.
enum class Form : uint8_t {
  function,  // a row of the table
  quick,     // x sigmoid(1.702 x)
  squared,   // relu(x)^2
  clamped,   // of both branches
};
struct Row {
  std::string_view name;
  Form form;
  PointwiseFn function = PointwiseFn::relu;  // of Form::function
};
// In the order of the enum.
constexpr std::array<Row, kActivations> kRows = {
    Row{"geglu", Form::function, PointwiseFn::gelu_tanh},
    Row{"swiglu", Form::function, PointwiseFn::silu},
    Row{"reglu", Form::function, PointwiseFn::relu},
    Row{"geglu_erf", Form::function, PointwiseFn::gelu_erf},
    Row{"quick_geglu", Form::quick},
    Row{"squared_reglu", Form::squared},
    Row{"clamped_swiglu", Form::clamped},
    Row{"gelu", Form::function, PointwiseFn::gelu_erf},
    Row{"relu", Form::function, PointwiseFn::relu},
    Row{"silu", Form::function, PointwiseFn::silu},
    Row{"gelu_tanh", Form::function, PointwiseFn::gelu_tanh},
    Row{"quick_gelu", Form::quick},
    Row{"squared_relu", Form::squared},
};
const Row& row_of(Activation activation) { return kRows[static_cast<size_t>(activation)]; }

constexpr double kQuickScale = 1.702;

// In the order of the enum.
constexpr std::array<std::string_view, 3> kNormNames = {"none", "rms", "layer"};

size_t find_name(const char* op, std::span<const std::string_view> names, std::string_view name) {
  std::string known;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return i;
    known += (i == 0 ? "" : ", ") + std::string(names[i]);
  }
  throw Error(std::string("[") + op + "] expected one of " + known + ", got \"" +
              std::string(name) + "\"");
}

int append_step(PointwiseProgram& program, const PointwiseStep& step) {
  program.steps.push_back(step);
  return program.values() - 1;
}

int push_clamp(PointwiseProgram& program, int value, float min, float max) {
  PointwiseStep step(PointwiseFn::clamp, value);
  step.parameters = {min, max, 0};
  return append_step(program, step);
}

// x sigmoid(scale x)
int push_scaled_silu(PointwiseProgram& program, int value, float scale) {
  const int scaled = append_step(program, {PointwiseFn::mul, value, kConstantOperand, scale});
  const int share = append_step(program, {PointwiseFn::sigmoid, scaled});
  return append_step(program, {PointwiseFn::mul, value, share});
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A number is no operand.
ActivationOp op_of(const PointwiseStep& step) {
  const OpDef* const op = pointwise_op_of(step.fn);
  int operands = 1;
  for (const int value : step.values()) operands += static_cast<int>(value != kConstantOperand);
  return {op, operands};
}

}  // namespace

std::string_view activation_name(Activation activation) { return row_of(activation).name; }

Activation parse_activation(std::string_view name) {
  std::array<std::string_view, kRows.size()> names;
  std::ranges::transform(kRows, names.begin(), &Row::name);
  return static_cast<Activation>(find_name("activation", names, name));
}

std::string_view norm_name(Norm norm) { return kNormNames[static_cast<size_t>(norm)]; }

Norm parse_norm(std::string_view name) {
  return static_cast<Norm>(find_name("norm", kNormNames, name));
}

Tensor activate(const Tensor& x, Activation activation) {
  const Row& row = row_of(activation);
  switch (row.form) {
    case Form::function: return apply_pointwise(row.function, {x});
    case Form::quick: return x * sigmoid(x * kQuickScale);
    case Form::squared: {
      const Tensor positive = relu(x);
      return positive * positive;
    }
    case Form::clamped: break;
  }
  throw Error("[activate] expected a function of one tensor, got clamped_swiglu");
}

Tensor gate(const Tensor& gate, const Tensor& up, Activation activation, const SwiGluClamp& clamp) {
  if (row_of(activation).form != Form::clamped) return activate(gate, activation) * up;
  const Tensor g = epilogue::clamp(gate, {}, clamp.limit);
  const Tensor u = epilogue::clamp(up, -clamp.limit, clamp.limit);
  return g * sigmoid(g * clamp.alpha) * (u + 1.0);
}

int push_activation(PointwiseProgram& program, Activation activation, int value) {
  const Row& row = row_of(activation);
  if (row.form == Form::quick)
    return push_scaled_silu(program, value, static_cast<float>(kQuickScale));
  if (row.form == Form::function) return append_step(program, {row.function, value});
  const int positive = append_step(program, {PointwiseFn::relu, value});
  return append_step(program, {PointwiseFn::mul, positive, positive});
}

int push_gate(PointwiseProgram& program, Activation activation, const SwiGluClamp& clamp, int gate,
              int up) {
  if (row_of(activation).form != Form::clamped)
    return append_step(program, {PointwiseFn::mul, push_activation(program, activation, gate), up});
  const auto limit = static_cast<float>(clamp.limit);
  const int g = push_clamp(program, gate, -kInfinity, limit);
  const int u = push_clamp(program, up, -limit, limit);
  const int glu = push_scaled_silu(program, g, static_cast<float>(clamp.alpha));
  const int above = append_step(program, {PointwiseFn::add, u, kConstantOperand, 1.0F});
  return append_step(program, {PointwiseFn::mul, glu, above});
}

std::vector<ActivationOp> ops_of(Activation activation) {
  PointwiseProgram program;
  program.inputs = 2;
  if (is_gated(activation)) {
    push_gate(program, activation, {}, 0, 1);
  } else {
    push_activation(program, activation, 0);
  }
  std::vector<ActivationOp> ops;
  for (const PointwiseStep& step : program.steps) ops.push_back(op_of(step));
  return ops;
}

}  // namespace epilogue::nn
