// SPDX-License-Identifier: Apache-2.0
// Whole layers through gradcheck in f64, with respect to the input and every parameter.
#include "epilogue/autograd.h"
#include "nn/reference.h"
#include "support/test.h"

namespace epilogue::nn::gradient_test {

void expect_gradients(Module& module, const Dims& input_sizes) {
  module.to(DType::f64);
  Tensor x = randn(input_sizes, DType::f64);
  x.set_requires_grad(true);
  std::vector<Tensor> inputs = module.parameters();
  inputs.push_back(x);
  const auto f = [&](std::span<const Tensor>) { return std::vector<Tensor>{module(x)}; };
  const GradcheckResult result = gradcheck(f, inputs);
  EXPECT_TRUE(result.ok) << module.class_name() << ": " << result.message;
}

class Gradient : public testing::Test {
 protected:
  void SetUp() override { manual_seed(21); }
};

TEST_F(Gradient, Linear) {
  Linear with(4, 3), without(4, 3, false);
  expect_gradients(with, {5, 4});
  expect_gradients(with, {2, 3, 4});
  expect_gradients(with, {4});
  expect_gradients(without, {5, 4});
}

TEST_F(Gradient, EveryActivationOfMakeMlp) {
  for (const Activation activation :
       {Activation::geglu, Activation::swiglu, Activation::reglu, Activation::geglu_erf,
        Activation::quick_geglu, Activation::squared_reglu, Activation::clamped_swiglu,
        Activation::gelu, Activation::gelu_tanh, Activation::relu, Activation::silu,
        Activation::quick_gelu, Activation::squared_relu})
    for (const bool bias : {true, false}) {
      const auto mlp = make_mlp({.dim = 4, .hidden = 6, .activation = activation, .bias = bias});
      expect_gradients(*mlp, {2, 2, 4});
    }
}

TEST_F(Gradient, DeepMlp) {
  MLP mlp(4, 5, 3, Activation::silu);
  expect_gradients(mlp, {3, 4});
}

TEST_F(Gradient, BlocksOfEveryNormAndResidual) {
  for (const Norm norm : {Norm::none, Norm::rms, Norm::layer})
    for (const bool residual : {true, false}) {
      const auto block = make_mlp({.dim = 4, .hidden = 6, .norm = norm, .residual = residual});
      expect_gradients(*block, {3, 4});
    }
}

TEST_F(Gradient, SharedLayerGetsTheSumOfBothUses) {
  const auto layer = std::make_shared<Linear>(3, 3);
  Sequential model({layer, std::make_shared<SiLU>(), layer});
  ASSERT_EQ(model.parameters().size(), 2U);
  expect_gradients(model, {2, 3});
}

TEST_F(Gradient, NoGradLeavesNoGraph) {
  const GatedMLP mlp(4, 6);
  const NoGrad no_grad;
  EXPECT_FALSE(mlp(randn({2, 4})).requires_grad());
}

}  // namespace epilogue::nn::gradient_test
