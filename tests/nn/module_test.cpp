// SPDX-License-Identifier: Apache-2.0
// Module: names, order, training mode, gradients, dtype, and the messages of misuse.
#include "nn/reference.h"
#include "support/test.h"

namespace epilogue::nn::module_test {

std::vector<std::string> names_of(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

using Names = std::vector<std::string>;

TEST(ModuleNames, InRegistrationOrder) {
  EXPECT_EQ(names_of(GatedMLP(2, 3).named_parameters()),
            (Names{"gate_proj.weight", "up_proj.weight", "down_proj.weight"}));
  EXPECT_EQ(names_of(GatedMLP(2, 3, Activation::swiglu, true).named_parameters()),
            (Names{"gate_proj.weight", "gate_proj.bias", "up_proj.weight", "up_proj.bias",
                   "down_proj.weight", "down_proj.bias"}));
  EXPECT_EQ(names_of(MLP(2, 3, 2).named_parameters()),
            (Names{"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "fc3.weight", "fc3.bias"}));
  const auto block = make_mlp({.dim = 2, .hidden = 3, .norm = Norm::layer});
  EXPECT_EQ(names_of(block->named_parameters()),
            (Names{"norm.weight", "norm.bias", "mlp.gate_proj.weight", "mlp.up_proj.weight",
                   "mlp.down_proj.weight"}));
  const Sequential model({std::make_shared<Linear>(2, 3), std::make_shared<ReLU>(),
                          std::make_shared<Linear>(3, 1, false)});
  EXPECT_EQ(names_of(model.named_parameters()), (Names{"0.weight", "0.bias", "2.weight"}));
}

TEST(ModuleNames, OwnParametersComeBeforeChildren) {
  struct Model : Module {
    Model() : Module("Model"), inner(2, 2, false) {
      register_module("inner", inner);
      register_parameter("scale", scale);
    }
    Tensor forward(const Tensor& x) const override { return inner(x) * scale; }
    Linear inner;
    Tensor scale = ones({1});
  };
  EXPECT_EQ(names_of(Model().named_parameters()), (Names{"scale", "inner.weight"}));
}

TEST(ModuleNames, SharedWeightsComeOnceAsParametersAndTwiceInTheState) {
  const auto layer = std::make_shared<Linear>(3, 3, false);
  const Sequential model({layer, layer});
  EXPECT_EQ(names_of(model.named_parameters()), (Names{"0.weight"}));
  EXPECT_EQ(names_of(model.state_dict()), (Names{"0.weight", "1.weight"}));
  EXPECT_EQ(model.num_parameters(), 9);
}

TEST(ModuleNames, AMemberReplacedAfterRegistrationIsSeen) {
  Linear layer(2, 2, false);
  layer.weight = ones({2, 2});
  EXPECT_TRUE(layer.parameters()[0].is_same(layer.weight));
}

TEST(ModuleNames, BadNamesAreRefused) {
  struct Model : Module {
    explicit Model(std::vector<std::string> names) : Module("Model") {
      for (const std::string& name : names) register_parameter(name, scale);
    }
    Tensor forward(const Tensor& x) const override { return x; }
    Tensor scale = ones({1});
  };
  EXPECT_ERROR(Model({"a", "a"}),
               "[register] expected a new name without dots for Model, got \"a\"");
  EXPECT_ERROR(Model({"a.b"}),
               "[register] expected a new name without dots for Model, got \"a.b\"");
  EXPECT_ERROR(Model({""}), "[register] expected a new name without dots for Model, got \"\"");
}

TEST(Module, CountsElements) {
  EXPECT_EQ(GatedMLP(4, 6, Activation::geglu, true).num_parameters(), 3 * 24 + 6 + 6 + 4);
  EXPECT_EQ(MLP(4, 6, 2, Activation::relu, false).num_parameters(), 24 + 36 + 24);
  EXPECT_EQ(ReLU().num_parameters(), 0);
}

TEST(Module, TrainingModeReachesEveryLayer) {
  Sequential model;
  Sequential& inner = model.emplace<Sequential>();
  Dropout& dropout = inner.emplace<Dropout>(0.5);
  EXPECT_TRUE(dropout.is_training());
  model.eval();
  EXPECT_FALSE(model.is_training());
  EXPECT_FALSE(inner.is_training());
  EXPECT_FALSE(dropout.is_training());
  model.train();
  EXPECT_TRUE(dropout.is_training());
}

TEST(Module, ZeroGradDropsOrFills) {
  GatedMLP mlp(3, 4);
  sum(mlp(randn({2, 3}))).backward();
  ASSERT_EQ(mlp.parameters().size(), 3U);
  for (const Tensor& p : mlp.parameters()) ASSERT_TRUE(p.grad().defined());
  mlp.zero_grad(false);
  for (const Tensor& p : mlp.parameters()) {
    ASSERT_TRUE(p.grad().defined());
    for (const double g : p.grad().to_vector()) EXPECT_EQ(g, 0);
  }
  mlp.zero_grad();
  for (const Tensor& p : mlp.parameters()) EXPECT_FALSE(p.grad().defined());
}

TEST(Module, ToConvertsInPlaceAndKeepsTheTensors) {
  manual_seed(4);
  Linear layer(3, 2);
  const Tensor held = layer.weight;
  const std::vector<double> before = held.to_vector();
  sum(layer(randn({2, 3}))).backward();
  layer.to(DType::f64);
  EXPECT_TRUE(layer.weight.is_same(held));
  EXPECT_EQ(held.dtype(), DType::f64);
  EXPECT_EQ(held.to_vector(), before);
  EXPECT_TRUE(held.requires_grad());
  EXPECT_EQ(held.grad().dtype(), DType::f64);
  layer.zero_grad();
  sum(layer(randn({2, 3}, DType::f64))).backward();
  EXPECT_EQ(held.grad().dtype(), DType::f64);
  EXPECT_ERROR(layer.to(DType::i64), "[to] expected a floating dtype for Linear, got i64");
}

TEST(ModuleErrors, Construction) {
  EXPECT_ERROR(Linear(-1, 2), "[Linear] expected sizes of at least 0, got -1 in, 2 out");
  EXPECT_ERROR(
      GatedMLP(2, 2, Activation::relu),
      "[GatedMLP] expected a gated activation (geglu, swiglu, reglu, geglu_erf, quick_geglu, "
      "squared_reglu, clamped_swiglu), got relu; MLP takes that");
  EXPECT_ERROR(MLP(2, 2, 1, Activation::geglu),
               "[MLP] expected a plain activation (gelu, relu, silu, gelu_tanh, quick_gelu, "
               "squared_relu), got geglu; GatedMLP takes that");
  EXPECT_ERROR(MLP(2, 2, 0), "[MLP] expected dim, hidden and layers of at least 1, got 2, 2, 0");
  EXPECT_ERROR(make_mlp({.dim = 2, .hidden = 2, .layers = 3}),
               "[make_mlp] expected 1 layer with the gated activation geglu, got 3");
  EXPECT_ERROR(Sequential({nullptr}), "[Sequential] expected a layer, got null");
  EXPECT_ERROR(Block(2, Norm::rms, nullptr), "[Block] expected a module, got null");
  EXPECT_ERROR(Dropout(1.5), "[Dropout] expected a probability in [0, 1], got 1.500000");
}

TEST(ModuleNames, ActivationsAndNormsParse) {
  const char* const names[] = {
      "geglu", "swiglu", "reglu", "geglu_erf", "quick_geglu", "squared_reglu", "clamped_swiglu",
      "gelu",  "relu",   "silu",  "gelu_tanh", "quick_gelu",  "squared_relu"};
  static_assert(std::size(names) == kActivations);
  for (const char* name : names) EXPECT_EQ(activation_name(parse_activation(name)), name);
  for (const char* name : {"none", "rms", "layer"}) EXPECT_EQ(norm_name(parse_norm(name)), name);
  EXPECT_ERROR(
      parse_activation("GELU"),
      "[activation] expected one of geglu, swiglu, reglu, geglu_erf, quick_geglu, squared_reglu, "
      "clamped_swiglu, gelu, relu, silu, gelu_tanh, quick_gelu, squared_relu, got \"GELU\"");
  EXPECT_ERROR(parse_norm(""), "[norm] expected one of none, rms, layer, got \"\"");
  EXPECT_TRUE(is_gated(Activation::reglu));
  EXPECT_TRUE(is_gated(Activation::geglu_erf));
  EXPECT_FALSE(is_gated(Activation::gelu));
}

}  // namespace epilogue::nn::module_test
