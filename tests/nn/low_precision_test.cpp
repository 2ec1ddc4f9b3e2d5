// SPDX-License-Identifier: Apache-2.0
// bf16 and f16 modules: right dtypes, and values near those of f64.
#include "nn/reference.h"
#include "support/test.h"

namespace epilogue::nn::low_precision_test {

class LowPrecision : public testing::TestWithParam<DType> {};

TEST_P(LowPrecision, EveryMlpIsNearItsExactValue) {
  const DType dtype = GetParam();
  // A few roundings of values near 1, each within half an ulp.
  const double tolerance = 4 * (dtype == DType::bf16 ? 0x1p-8 : 0x1p-11);
  for (const Activation activation :
       {Activation::geglu, Activation::swiglu, Activation::reglu, Activation::geglu_erf,
        Activation::quick_geglu, Activation::squared_reglu, Activation::clamped_swiglu,
        Activation::gelu, Activation::relu, Activation::silu, Activation::quick_gelu,
        Activation::squared_relu})
    for (const Norm norm : {Norm::none, Norm::rms, Norm::layer}) {
      manual_seed(9);
      const auto mlp = make_mlp({.dim = 32,
                                 .hidden = 48,
                                 .activation = activation,
                                 .bias = true,
                                 .norm = norm,
                                 .residual = true});
      mlp->to(dtype);
      const Tensor x = randn({3, 32}, dtype);
      const Tensor y = (*mlp)(x);
      EXPECT_EQ(y.dtype(), dtype);
      mlp->to(DType::f64);  // the same rounded weights, exact arithmetic
      EXPECT_TRUE(near(y, matrix_of((*mlp)(to(x, DType::f64))), tolerance))
          << activation_name(activation) << " " << norm_name(norm);
    }
}

TEST_P(LowPrecision, GradientsHaveTheParametersDtype) {
  GatedMLP mlp(8, 16);
  mlp.to(GetParam());
  sum(mlp(randn({2, 8}, GetParam()))).backward();
  ASSERT_EQ(mlp.parameters().size(), 3U);
  for (const Tensor& p : mlp.parameters()) EXPECT_EQ(p.grad().dtype(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(DTypes, LowPrecision, testing::Values(DType::bf16, DType::f16),
                         [](const auto& p) { return std::string(dtype_name(p.param)); });

}  // namespace epilogue::nn::low_precision_test
