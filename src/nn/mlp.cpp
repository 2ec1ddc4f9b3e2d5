// SPDX-License-Identifier: Apache-2.0
// MLP, GatedMLP and the factory that chooses between them.
#include "epilogue/nn.h"
#include "nn/activation.h"

namespace epilogue::nn {
namespace {

void require_sizes(const char* op, int64_t dim, int64_t hidden, int64_t layers) {
  if (dim < 1 || hidden < 1 || layers < 1)
    throw Error(std::string("[") + op + "] expected dim, hidden and layers of at least 1, got " +
                std::to_string(dim) + ", " + std::to_string(hidden) + ", " +
                std::to_string(layers));
}

}  // namespace

MLP::MLP(int64_t dim, int64_t hidden, int64_t layers, Activation activation, bool bias)
    : Module("MLP"), activation_(activation) {
  require_sizes("MLP", dim, hidden, layers);
  if (is_gated(activation))
    throw Error(
        "[MLP] expected a plain activation (gelu, relu, silu, gelu_tanh, quick_gelu, "
        "squared_relu), got " +
        std::string(activation_name(activation)) + "; GatedMLP takes that");
  for (int64_t i = 0; i <= layers; ++i) {
    linears_.push_back(
        std::make_unique<Linear>(i == 0 ? dim : hidden, i == layers ? dim : hidden, bias));
    register_module("fc" + std::to_string(i + 1), *linears_.back());
  }
}

Linear& MLP::fc(size_t i) const {
  if (i >= linears_.size())
    throw Error("[MLP::fc] expected a linear below " + std::to_string(linears_.size()) + ", got " +
                std::to_string(i));
  return *linears_[i];
}

Tensor MLP::forward(const Tensor& x) const {
  Tensor y = x;
  for (size_t i = 0; i + 1 < linears_.size(); ++i) y = activate((*linears_[i])(y), activation_);
  return (*linears_.back())(y);
}

GatedMLP::GatedMLP(int64_t dim, int64_t hidden, Activation activation, bool bias)
    : Module("GatedMLP"),
      gate_proj(dim, hidden, bias),
      up_proj(dim, hidden, bias),
      down_proj(hidden, dim, bias),
      activation_(activation) {
  require_sizes("GatedMLP", dim, hidden, 1);
  if (!is_gated(activation))
    throw Error(
        "[GatedMLP] expected a gated activation (geglu, swiglu, reglu, geglu_erf, quick_geglu, "
        "squared_reglu, clamped_swiglu), got " +
        std::string(activation_name(activation)) + "; MLP takes that");
  register_module("gate_proj", gate_proj);
  register_module("up_proj", up_proj);
  register_module("down_proj", down_proj);
}

// y = down(act(gate(x)) * up(x)): eagerly 3 GEMMs and 2 pointwise kernels.
Tensor GatedMLP::forward(const Tensor& x) const {
  const Tensor& gate_weight = gate_proj.weight;
  const Tensor& up_weight = up_proj.weight;
  if (gate_weight.defined() && up_weight.defined() && !(gate_weight.sizes() == up_weight.sizes()))
    throw Error("[GatedMLP] expected up_proj.weight of gate_proj.weight's shape " +
                to_string(gate_weight.sizes()) + ", got " + to_string(up_weight));
  if (activation_ == Activation::clamped_swiglu) {
    const Tensor g = gate_proj(x);
    return down_proj(gate(g, up_proj(x), activation_));
  }
  const Tensor gate = activate(gate_proj(x), activation_);
  return down_proj(gate * up_proj(x));
}

std::shared_ptr<Module> make_mlp(const MlpConfig& config) {
  require_sizes("make_mlp", config.dim, config.hidden, config.layers);
  std::shared_ptr<Module> mlp;
  if (!is_gated(config.activation)) {
    mlp = std::make_shared<MLP>(config.dim, config.hidden, config.layers, config.activation,
                                config.bias);
  } else if (config.layers == 1) {
    mlp = std::make_shared<GatedMLP>(config.dim, config.hidden, config.activation, config.bias);
  } else {
    throw Error("[make_mlp] expected 1 layer with the gated activation " +
                std::string(activation_name(config.activation)) + ", got " +
                std::to_string(config.layers));
  }
  if (config.norm == Norm::none && !config.residual) return mlp;
  return std::make_shared<Block>(config.dim, config.norm, std::move(mlp), config.residual);
}

}  // namespace epilogue::nn
