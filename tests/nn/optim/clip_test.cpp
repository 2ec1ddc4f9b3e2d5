// SPDX-License-Identifier: Apache-2.0
#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "epilogue/optim.h"
#include "errors/message_of.h"
#include "nn/golden.h"
#include "support/test.h"

namespace epilogue::optim::clip_test {

using nlohmann::json;

std::vector<Tensor> with_gradients(const std::vector<Tensor>& grads) {
  std::vector<Tensor> params;
  for (const Tensor& g : grads) {
    params.push_back(zeros(g.sizes(), g.dtype()));
    params.back().set_requires_grad(true);
    params.back().set_grad(clone(g));
  }
  return params;
}

TEST(ClipGradNorm, EqualsPyTorchsForEveryNorm) {
  const json& data = test::golden()["clipping"];
  const json& shapes = test::golden()["optimizers"]["shapes"];
  ASSERT_EQ(data["cases"].size(), 8U);
  for (const DType dtype : {DType::f64, DType::f32}) {
    const double tolerance = dtype == DType::f64 ? 1e-14 : 1e-6;
    for (const json& c : data["cases"]) {
      const std::vector<Tensor> params =
          with_gradients(test::tensors_of(data["gradients"], shapes, dtype));
      const double order = c["norm_type"] < 0 ? INFINITY : c["norm_type"].get<double>();
      const double norm = grad_norm(params, order);
      EXPECT_EQ(clip_grad_norm_(params, c["max_norm"], order), norm);
      EXPECT_NEAR(norm, c["total"], tolerance * norm) << c["norm_type"];
      for (size_t i = 0; i < params.size(); ++i)
        test::expect_golden(params[i].grad(), c["gradients"][i], tolerance, c["norm_type"].dump());
    }
  }
}

// 3, 4: norm 5. Clipped to 1: times 1 / (5 + 1e-6).
TEST(ClipGradNorm, KnownValues) {
  const std::vector<Tensor> params =
      with_gradients({full({1}, 3, DType::f64), full({1}, 4, DType::f64)});
  EXPECT_EQ(clip_grad_norm_(params, 1), 5);
  EXPECT_NEAR(params[0].grad().item(), 3 / 5.000001, 1e-15);
  EXPECT_EQ(clip_coefficient(0.5, 1), 1);
  EXPECT_TRUE(std::isnan(clip_coefficient(std::nan(""), 1)));
  EXPECT_EQ(clip_coefficient(INFINITY, 1), 0);
  EXPECT_EQ(clip_grad_norm_({}, 1), 0);
  Tensor without = zeros({2});
  without.set_requires_grad(true);
  EXPECT_EQ(clip_grad_norm_({without}, 1), 0);
}

// Squares of these leave f32's range; the norm does not.
TEST(ClipGradNorm, NeitherOverflowsNorVanishesInBetween) {
  EXPECT_NEAR(grad_norm(with_gradients({full({10000}, 1e30)})) / 1e32, 1, 1e-6);
  EXPECT_NEAR(grad_norm(with_gradients({full({10000}, 1e-30)})) / 1e-28, 1, 1e-6);
}

TEST(ClipGradNorm, LowPrecisionGradients) {
  const std::vector<Tensor> params =
      with_gradients({full({5000}, 2, DType::bf16), full({5000}, 2, DType::f16), full({5000}, 2)});
  EXPECT_NEAR(grad_norm(params), 2 * std::sqrt(15000.0), 1e-4);
  EXPECT_EQ(grad_norm(params, INFINITY), 2);
  EXPECT_EQ(grad_norm(params, 1), 30000);
  clip_grad_norm_(params, std::sqrt(15000.0));
  for (const Tensor& p : params) EXPECT_NEAR(p.grad().to_vector()[4999], 1, 0x1p-8);
}

TEST(ClipGradNorm, NonFiniteNormsThrowOnDemandAndSpreadElse) {
  for (const double bad : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    const Tensor g = from_values({1, bad, 1}, {3});
    const std::vector<Tensor> params = with_gradients({g, ones({2})});
    for (const double order : {1.0, 2.0, static_cast<double>(INFINITY)}) {
      EXPECT_FALSE(std::isfinite(grad_norm(params, order)));
      EXPECT_EQ(std::isnan(grad_norm(params, order)), std::isnan(bad));
    }
    EXPECT_THROW(clip_grad_norm_(params, 1, 2, true), Error);
    EXPECT_EQ(params[1].grad().to_vector(), (std::vector<double>{1, 1})) << "unchanged";
    clip_grad_norm_(params, 1);
    // NaN makes every gradient NaN; infinity times 0 does so for itself.
    const std::vector<double> v = params[1].grad().to_vector();
    EXPECT_EQ(std::isnan(v[0]), std::isnan(bad));
    EXPECT_TRUE(std::isnan(params[0].grad().to_vector()[1]));
  }
  EXPECT_ERROR(
      clip_grad_norm_(with_gradients({full({1}, INFINITY)}), 1, 2, true),
      "[clip_grad_norm_] expected gradients with a finite norm of order 2, got inf; to scale "
      "them anyway, leave error_if_nonfinite off");
}

TEST(ClipGradNorm, ANormThatIsNoneIsRefusedAndInfinityClipsNothing) {
  const std::vector<Tensor> params = with_gradients({from_values({3, 4}, {2})});
  EXPECT_ERROR(clip_grad_norm_(params, -1), "[clip_coefficient] expected a max_norm >= 0, got -1");
  EXPECT_ERROR(clip_grad_norm_(params, NAN),
               "[clip_coefficient] expected a max_norm >= 0, got nan");
  EXPECT_EQ(clip_grad_norm_(params, INFINITY), 5);
  EXPECT_EQ(params[0].grad().to_vector(), (std::vector<double>{3, 4}));
}

TEST(ClipGradValue, ClampsAndKeepsNaN) {
  const std::vector<Tensor> params = with_gradients(
      {from_values({-3, -0.5, 0, 0.5, 3, NAN, INFINITY, -INFINITY, 2}, {9}), ones({5000})});
  clip_grad_value_(params, 1);
  const std::vector<double> v = params[0].grad().to_vector();
  EXPECT_EQ(std::vector<double>(v.begin(), v.begin() + 5),
            (std::vector<double>{-1, -0.5, 0, 0.5, 1}));
  EXPECT_TRUE(std::isnan(v[5]));
  EXPECT_EQ(std::vector<double>(v.begin() + 6, v.end()), (std::vector<double>{1, -1, 1}));
}

}  // namespace epilogue::optim::clip_test
