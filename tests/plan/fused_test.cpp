// SPDX-License-Identifier: Apache-2.0
#include "epilogue/fused.h"

#include "ops/op_testing.h"
#include "plan_testing.h"
#include "support/test.h"

namespace epilogue::testing::fused_test {

TEST(Fused, EqualsCompiledForEveryModule) {
  const NoGrad no_grad;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const nn::Norm norm : {nn::Norm::none, nn::Norm::rms, nn::Norm::layer})
      for (const nn::Activation activation :
           {nn::Activation::geglu, nn::Activation::swiglu, nn::Activation::reglu,
            nn::Activation::geglu_erf, nn::Activation::gelu, nn::Activation::relu,
            nn::Activation::silu, nn::Activation::quick_geglu, nn::Activation::squared_reglu,
            nn::Activation::clamped_swiglu, nn::Activation::quick_gelu,
            nn::Activation::squared_relu})
        for (const bool residual : {false, true}) {
          const auto module = nn::make_mlp({.dim = 24,
                                            .hidden = 50,
                                            .layers = nn::is_gated(activation) ? 1 : 3,
                                            .activation = activation,
                                            .bias = !nn::is_gated(activation),
                                            .norm = norm,
                                            .residual = residual});
          module->to(dtype);
          const Tensor x = randn({3, 5, 24}, dtype);
          const Tensor got = fused_forward(*module, x).value();
          const Tensor compiled = compile(*module)(x);
          // A gate that several steps read: compile() cuts these otherwise.
          const bool is_cut = activation == nn::Activation::quick_geglu ||
                              activation == nn::Activation::clamped_swiglu;
          if (is_cut) {
            expect_close(got, compiled, dtype == DType::f32 ? 1e-5 : 4e-2,
                         std::string(nn::activation_name(activation)));
          } else {
            EXPECT_EQ(got.to_vector(), compiled.to_vector());
          }
        }
  clear_fused_cache();
}

TEST(Fused, SeesWrittenWeights) {
  const NoGrad no_grad;
  nn::GatedMLP mlp(8, 16);
  const Tensor x = randn({4, 8});
  fused_forward(mlp, x);
  copy_(mlp.down_proj.weight, randn({8, 16}));
  expect_close(*fused_forward(mlp, x), mlp(x), 1e-5, "written weight");
  clear_fused_cache();
}

TEST(Fused, TakesRowsOfAnyStrideAndNone) {
  const NoGrad no_grad;
  nn::GatedMLP mlp(8, 16);
  const Tensor x = transpose(randn({8, 6}), 0, 1);
  expect_close(*fused_forward(mlp, x), mlp(x), 1e-5, "transposed");
  EXPECT_EQ(fused_forward(mlp, randn({0, 8}))->sizes(), (Dims{0, 8}));
  EXPECT_FALSE(fused_forward(nn::ReLU(), x).has_value());
  clear_fused_cache();
}

TEST(Fused, OptionsThatDoNotFitAreNamed) {
  const Tensor x = randn({2, 8});
  const Tensor w = randn({16, 8});
  const Tensor down = randn({8, 16});
  const auto refused = [&](const FusedOptions& options) {
    return error_of([&] { fused_gated_mlp(x, w, w, down, nn::Activation::geglu, options); });
  };
  EXPECT_EQ(refused({.norm_weight = ones({8})}),
            "[fused_gated_mlp] expected no norm weight or bias without a norm, got f32[8]");
  EXPECT_EQ(refused({.norm = nn::Norm::rms, .norm_bias = ones({8})}),
            "[fused_gated_mlp] expected no norm bias with an RMS norm, got f32[8]");
  EXPECT_EQ(refused({.norm = nn::Norm::rms, .eps = NAN}),
            "[fused_gated_mlp] expected a finite eps >= 0, got nan");
  EXPECT_EQ(refused({.norm = nn::Norm::layer, .eps = -1.0}),
            "[fused_gated_mlp] expected a finite eps >= 0, got -1.000000");
}

TEST(Fused, AGatedMlpWithBiases) {
  const NoGrad no_grad;
  const nn::GatedMLP mlp(8, 16, nn::Activation::geglu, true);
  const Tensor x = randn({2, 8});
  expect_close(fused_forward(mlp, x).value(), mlp(x), 1e-5, "biases");
  clear_fused_cache();
}

TEST(Fused, MisuseIsNamed) {
  const Tensor x = randn({2, 8});
  const Tensor w = randn({16, 8});
  const Tensor down = randn({8, 16});
  EXPECT_ERROR(fused_gated_mlp(x, w, w, w, nn::Activation::geglu),
               "[fused_gated_mlp] expected down [n, 16] of x's dtype, got f32[16, 8]");
  EXPECT_ERROR(fused_gated_mlp(x, w, down, down, nn::Activation::geglu),
               "[fused_gated_mlp] expected up [n, 8] of x's dtype, got f32[8, 16]");
  EXPECT_ERROR(fused_gated_mlp(x, w, randn({4, 8}), down, nn::Activation::geglu),
               "[fused_gated_mlp] expected up of gate's shape [16, 8], got f32[4, 8]");
  EXPECT_ERROR(fused_gated_mlp(x, w, w, down, nn::Activation::gelu),
               "[fused_gated_mlp] expected a gated activation, got gelu");
  const Tensor weights[] = {w};
  EXPECT_ERROR(fused_mlp(x, weights, {}, nn::Activation::relu, {.residual = true}),
               "[fused_mlp] expected as many columns in the result as in x for a residual, got 16");
  nn::GatedMLP mlp(8, 16);
  EXPECT_HAS(error_of([&] { fused_forward(mlp, x); }), "no_grad");
}

}  // namespace epilogue::testing::fused_test
