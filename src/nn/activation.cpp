// SPDX-License-Identifier: Apache-2.0
// Names of activations and norms, and the functions behind the activations.
#include "nn/activation.h"

#include <array>
#include <span>

namespace epilogue::nn {
namespace {

// In the order of the enums.
constexpr std::array<std::string_view, 7> kActivationNames = {"geglu", "swiglu", "reglu",    "gelu",
                                                              "relu",  "silu",   "gelu_tanh"};
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

std::string_view activation_name(Activation activation) {
  return kActivationNames[static_cast<size_t>(activation)];
}

Activation parse_activation(std::string_view name) {
  return static_cast<Activation>(find_name("activation", kActivationNames, name));
}

std::string_view norm_name(Norm norm) { return kNormNames[static_cast<size_t>(norm)]; }

Norm parse_norm(std::string_view name) {
  return static_cast<Norm>(find_name("norm", kNormNames, name));
}

Tensor activate(const Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::geglu:
    case Activation::gelu_tanh: return gelu(x, Gelu::tanh);
    case Activation::swiglu:
    case Activation::silu: return silu(x);
    case Activation::reglu:
    case Activation::relu: return relu(x);
    case Activation::gelu: break;
  }
  return gelu(x, Gelu::exact);
}

}  // namespace epilogue::nn
