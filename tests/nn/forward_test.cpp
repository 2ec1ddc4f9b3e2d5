// SPDX-License-Identifier: Apache-2.0
// Every layer against the loops of reference.h, in f64 and f32.
#include "nn/reference.h"
#include "support/test.h"

namespace epilogue::nn::forward_test {

constexpr Activation kGated[] = {Activation::geglu,         Activation::swiglu,
                                 Activation::reglu,         Activation::geglu_erf,
                                 Activation::quick_geglu,   Activation::squared_reglu,
                                 Activation::clamped_swiglu};
constexpr Activation kPlain[] = {Activation::gelu,       Activation::gelu_tanh,
                                 Activation::relu,       Activation::silu,
                                 Activation::quick_gelu, Activation::squared_relu};

double tolerance(DType dtype) { return dtype == DType::f64 ? 1e-12 : 2e-5; }

class Forward : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override { manual_seed(7); }
  DType dtype() const { return GetParam(); }
  double tol() const { return tolerance(dtype()); }
};

TEST_P(Forward, LinearOverOneToThreeDimensions) {
  for (const bool bias : {true, false}) {
    Linear layer(5, 3, bias);
    layer.to(dtype());
    for (const Dims& sizes : {Dims{5}, Dims{4, 5}, Dims{2, 3, 5}}) {
      const Tensor x = randn(sizes, dtype());
      const Tensor y = layer(x);
      Dims expected = sizes;
      expected[expected.rank() - 1] = 3;
      EXPECT_EQ(y.sizes(), expected);
      EXPECT_EQ(y.dtype(), dtype());
      EXPECT_TRUE(near(y, reference_linear(matrix_of(x), layer.weight, layer.bias), tol()));
    }
  }
}

TEST_P(Forward, GatedMlp) {
  for (const Activation activation : kGated)
    for (const bool bias : {true, false}) {
      GatedMLP mlp(6, 10, activation, bias);
      mlp.to(dtype());
      const Tensor x = randn({2, 3, 6}, dtype());
      const Tensor y = mlp(x);
      EXPECT_EQ(y.sizes(), x.sizes());
      EXPECT_TRUE(near(y, reference_gated(matrix_of(x), mlp), tol()))
          << activation_name(activation) << " bias " << bias;
    }
}

TEST_P(Forward, MlpOfOneToThreeHiddenLayers) {
  for (const Activation activation : kPlain)
    for (const bool bias : {true, false})
      for (const int64_t layers : {1, 2, 3}) {
        MLP mlp(6, 10, layers, activation, bias);
        mlp.to(dtype());
        ASSERT_EQ(mlp.num_linears(), static_cast<size_t>(layers + 1));
        const Tensor x = randn({4, 6}, dtype());
        EXPECT_TRUE(near(mlp(x), reference_mlp(matrix_of(x), mlp), tol()))
            << activation_name(activation) << " bias " << bias << " layers " << layers;
      }
}

TEST_P(Forward, NormsWithAndWithoutWeights) {
  const Tensor x = randn({3, 8}, dtype());
  for (const bool affine : {true, false}) {
    LayerNorm layer({8}, 1e-3, affine);
    RMSNorm rms({8}, 1e-3, affine);
    if (affine) {
      uniform_(layer.weight, 0.5, 2);
      uniform_(layer.bias, -1, 1);
      uniform_(rms.weight, 0.5, 2);
    }
    layer.to(dtype());
    rms.to(dtype());
    EXPECT_TRUE(
        near(layer(x), reference_layer_norm(matrix_of(x), layer.weight, layer.bias, 1e-3), tol()));
    EXPECT_TRUE(near(rms(x), reference_rms_norm(matrix_of(x), rms.weight, 1e-3), tol()));
  }
}

TEST_P(Forward, RmsNormWithoutEpsUsesTheMachineEpsilon) {
  // So small that eps decides the result.
  const double eps = dtype() == DType::f64 ? 0x1p-52 : 0x1p-23;
  RMSNorm norm({4});
  norm.to(dtype());
  const double scale = std::sqrt(eps);
  const Tensor x = from_values({scale, -scale, 2 * scale, 0}, {1, 4}, dtype());
  EXPECT_TRUE(near(norm(x), reference_rms_norm(matrix_of(x), norm.weight, eps), tol()));
}

TEST_P(Forward, BlocksOfEveryNormAndResidual) {
  for (const Norm kind : {Norm::none, Norm::rms, Norm::layer})
    for (const bool residual : {true, false}) {
      const auto mlp = std::make_shared<GatedMLP>(6, 10);
      Block block(6, kind, mlp, residual);
      block.to(dtype());
      const Tensor x = randn({4, 6}, dtype());
      Matrix h = matrix_of(x);
      const double machine = dtype() == DType::f64 ? 0x1p-52 : 0x1p-23;
      if (kind == Norm::rms) h = reference_rms_norm(h, {}, machine);
      if (kind == Norm::layer) h = reference_layer_norm(h, {}, {}, 1e-5);
      Matrix expected = reference_gated(h, *mlp);
      if (residual) expected = plus(expected, matrix_of(x));
      EXPECT_TRUE(near(block(x), expected, tol())) << norm_name(kind) << " residual " << residual;
    }
}

TEST_P(Forward, SequentialRunsInOrder) {
  Sequential model;
  const Linear& first = model.emplace<Linear>(5, 7);
  model.emplace<SiLU>();
  model.emplace<GELU>(Gelu::tanh);
  model.emplace<ReLU>();
  const Linear& last = model.emplace<Linear>(7, 2, false);
  model.to(dtype());
  const Tensor x = randn({3, 5}, dtype());
  Matrix h = reference_linear(matrix_of(x), first.weight, first.bias);
  h = reference_activate(std::move(h), Activation::silu);
  h = reference_activate(std::move(h), Activation::gelu_tanh);
  h = reference_activate(std::move(h), Activation::relu);
  EXPECT_TRUE(near(model(x), reference_linear(h, last.weight, last.bias), tol()));
  EXPECT_EQ(model.size(), 5U);
}

INSTANTIATE_TEST_SUITE_P(DTypes, Forward, testing::Values(DType::f64, DType::f32),
                         [](const auto& p) { return std::string(dtype_name(p.param)); });

TEST(ForwardEdge, EmptySequentialIsTheIdentity) {
  const Tensor x = randn({2, 3});
  EXPECT_TRUE(Sequential()(x).is_same(x));
}

TEST(ForwardEdge, EmptyBatch) {
  const GatedMLP mlp(4, 8);
  EXPECT_EQ(mlp(empty({0, 4})).sizes(), (Dims{0, 4}));
}

TEST(ForwardEdge, NonContiguousInput) {
  manual_seed(3);
  const GatedMLP mlp(4, 8);
  const Tensor x = transpose(randn({4, 6}), 0, 1);
  EXPECT_FALSE(x.is_contiguous());
  EXPECT_TRUE(near(mlp(x), reference_gated(matrix_of(x), mlp), 2e-5));
}

TEST(ForwardEdge, WrongWidthIsAnError) {
  const Linear layer(4, 2);
  EXPECT_THROW((void)layer(randn({3, 5})), Error);
}

TEST(ForwardEdge, DropoutWorksOnlyWhileTraining) {
  manual_seed(1);
  Dropout layer(0.25);
  const Tensor x = ones({1000});
  int64_t zeros_seen = 0;
  for (const double v : layer(x).to_vector()) {
    if (v == 0) {
      ++zeros_seen;
    } else {
      EXPECT_FLOAT_EQ(v, 1 / 0.75);
    }
  }
  EXPECT_NEAR(static_cast<double>(zeros_seen), 250, 60);
  layer.eval();
  EXPECT_EQ(layer(x).to_vector(), x.to_vector());
}

}  // namespace epilogue::nn::forward_test
