// SPDX-License-Identifier: Apache-2.0
// Names of activations and norms, and the functions behind the activations.
#include "nn/activation.h"

#include <algorithm>
#include <array>
#include <span>

#include "ops/pointwise/pointwise.h"

namespace epilogue::nn {
namespace {

struct Row {
  std::string_view name;
  PointwiseFn function;
};
// In the order of the enum.
constexpr std::array kActivations = {
    Row{"geglu", PointwiseFn::gelu_tanh}, Row{"swiglu", PointwiseFn::silu},
    Row{"reglu", PointwiseFn::relu},      Row{"geglu_erf", PointwiseFn::gelu_erf},
    Row{"gelu", PointwiseFn::gelu_erf},   Row{"relu", PointwiseFn::relu},
    Row{"silu", PointwiseFn::silu},       Row{"gelu_tanh", PointwiseFn::gelu_tanh},
};
const Row& row_of(Activation activation) { return kActivations[static_cast<size_t>(activation)]; }

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

}  // namespace

std::string_view activation_name(Activation activation) { return row_of(activation).name; }

Activation parse_activation(std::string_view name) {
  std::array<std::string_view, kActivations.size()> names;
  std::ranges::transform(kActivations, names.begin(), &Row::name);
  return static_cast<Activation>(find_name("activation", names, name));
}

std::string_view norm_name(Norm norm) { return kNormNames[static_cast<size_t>(norm)]; }

Norm parse_norm(std::string_view name) {
  return static_cast<Norm>(find_name("norm", kNormNames, name));
}

PointwiseFn function_of(Activation activation) { return row_of(activation).function; }

Tensor activate(const Tensor& x, Activation activation) {
  return apply_pointwise(function_of(activation), {x});
}

}  // namespace epilogue::nn
