// SPDX-License-Identifier: Apache-2.0
// Initialisation: bounds, moments, order of draws, the same numbers for the same seed.
#include "nn/reference.h"
#include "support/test.h"

namespace epilogue::nn::init_test {

TEST(Init, LinearStaysInsideItsBoundAndComesNearIt) {
  manual_seed(11);
  const Linear layer(64, 512);
  ASSERT_EQ(layer.parameters().size(), 2U);
  for (const Tensor& p : layer.parameters()) {
    const std::vector<double> v = p.to_vector();
    const auto [low, high] = std::minmax_element(v.begin(), v.end());
    EXPECT_GE(*low, -0.125);  // 1/sqrt(64)
    EXPECT_LE(*high, 0.125);
    EXPECT_LT(*low, -0.12);
    EXPECT_GT(*high, 0.12);
    double square = 0;
    for (const double x : v) square += x * x;
    // Var U(-b, b) = b^2 / 3
    EXPECT_NEAR(square / static_cast<double>(v.size()), 0.125 * 0.125 / 3, 6e-4);
  }
}

TEST(Init, SameSeedSameNumbersOtherSeedOthers) {
  manual_seed(5);
  const Linear a(8, 8);
  manual_seed(5);
  const Linear b(8, 8);
  const Linear c(8, 8);
  EXPECT_EQ(a.weight.to_vector(), b.weight.to_vector());
  EXPECT_EQ(a.bias.to_vector(), b.bias.to_vector());
  EXPECT_NE(a.weight.to_vector(), c.weight.to_vector());
}

TEST(Init, WeightIsDrawnBeforeBias) {
  manual_seed(5);
  const Linear with(8, 8, true);
  manual_seed(5);
  const Linear without(8, 8, false);
  EXPECT_EQ(with.weight.to_vector(), without.weight.to_vector());
}

TEST(Init, LinearWithoutInputsHasZeroBias) {
  const Linear layer(0, 3);
  EXPECT_EQ(layer.bias.to_vector(), (std::vector<double>{0, 0, 0}));
}

TEST(Init, KaimingBoundFromFanIn) {
  manual_seed(2);
  const Tensor w = kaiming_uniform_(empty({100, 6, 4}));  // fan_in 24, bound 0.5
  const std::vector<double> v = w.to_vector();
  const auto [low, high] = std::minmax_element(v.begin(), v.end());
  EXPECT_GE(*low, -0.5);
  EXPECT_LE(*high, 0.5);
  EXPECT_GT(*high - *low, 0.98);
}

TEST(Init, NormalMoments) {
  manual_seed(2);
  const std::vector<double> v = normal_(empty({40000}), 3, 0.5).to_vector();
  double mean = 0, square = 0;
  for (const double x : v) mean += x / 40000;
  for (const double x : v) square += (x - mean) * (x - mean) / 40000;
  EXPECT_NEAR(mean, 3, 0.02);
  EXPECT_NEAR(std::sqrt(square), 0.5, 0.02);
}

TEST(Init, FillsViewsWithoutTouchingTheRest) {
  const Tensor whole = zeros({4, 4});
  uniform_(transpose(slice(whole, 1, 1, 3), 0, 1), 1, 2);
  const std::vector<double> v = whole.to_vector();
  for (size_t i = 0; i < v.size(); ++i) {
    const bool inside = i % 4 == 1 || i % 4 == 2;
    EXPECT_EQ(v[i] >= 1, inside) << i;
  }
}

TEST(Init, NormsStartAsOnesAndZeros) {
  const LayerNorm norm({3});
  EXPECT_EQ(norm.weight.to_vector(), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(norm.bias.to_vector(), (std::vector<double>{0, 0, 0}));
}

TEST(Init, Errors) {
  EXPECT_ERROR(uniform_(empty({2}, DType::i64)),
               "[uniform_] expected a floating tensor, got i64[2]");
  EXPECT_ERROR(kaiming_uniform_(empty({2})),
               "[kaiming_uniform_] expected at least 2 dimensions, got f32[2]");
  EXPECT_ERROR(normal_({}), "[normal_] expected a floating tensor, got undefined");
}

}  // namespace epilogue::nn::init_test
