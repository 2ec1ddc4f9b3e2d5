// SPDX-License-Identifier: Apache-2.0
#include "bench/model.h"

#include "bench/agreement.h"
#include "bench/onednn_model.h"
#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "support/test.h"

namespace epilogue::bench::model_test {

// x [3, 2]; gate relu, up, down, a residual: small enough to work out by hand.
Model gated_by_hand() {
  Model model;
  model.stages.push_back({.weight = from_values({1, 0, 0, 1}, {2, 2}),
                          .bias = from_values({1, -1}, {2}),
                          .activation = nn::Activation::reglu,
                          .up = from_values({1, 1, 2, 0}, {2, 2}),
                          .up_bias = from_values({0, 1}, {2})});
  model.stages.push_back({.weight = from_values({1, 1, 1, -1}, {2, 2})});
  model.residual = true;
  return model;
}

TEST(BenchModel, ExactRowsAreTheFormula) {
  const Tensor x = from_values({1, 2, 9, 9, -3, 4}, {3, 2});
  const std::vector<int64_t> rows = {0, 2};
  // Row 0: gate relu(1 + 1, 2 - 1) = (2, 1); up (3, 2 + 1) = (3, 3); hidden (6, 3); down (9, 3);
  // plus x (10, 5). Row 2: gate relu(-2, 3) = (0, 3); up (1, -5); hidden (0, -15); down (-15, 15);
  // plus x (-18, 19).
  EXPECT_EQ(exact_rows(gated_by_hand(), x, rows).to_vector(),
            (std::vector<double>{10, 5, -18, 19}));
}

TEST(BenchModel, AnAddendIsAddedRowByRow) {
  Model model;
  model.stages.push_back(
      {.weight = from_values({2}, {1, 1}), .addend = from_values({10, 20, 30}, {3, 1})});
  const std::vector<int64_t> rows = {1, 2};
  EXPECT_EQ(exact_rows(model, from_values({1, 2, 3}, {3, 1}), rows).to_vector(),
            (std::vector<double>{24, 36}));
}

TEST(BenchModel, ANormComesFirst) {
  Model model = {.norm = nn::Norm::rms, .norm_weight = from_values({1, 2}, {2})};
  model.stages.push_back({.weight = from_values({1, 0, 0, 1}, {2, 2})});
  const std::vector<int64_t> rows = {0};
  const std::vector<double> y = exact_rows(model, from_values({3, 4}, {1, 2}), rows).to_vector();
  const double rms = std::sqrt((9 + 16) / 2.0);
  EXPECT_NEAR(y[0], 3 / rms, 1e-12);
  EXPECT_NEAR(y[1], 2 * 4 / rms, 1e-12);
}

TEST(BenchModel, FlopsCountTheProducts) {
  // Three weights of 2 x 2 over 5 rows.
  EXPECT_EQ(product_flops(gated_by_hand(), 5), 2.0 * 5 * 3 * 4);
}

TEST(Agreement, RelativeErrorOfKnownVectors) {
  EXPECT_DOUBLE_EQ(relative_l2(from_values({3, 4.5}, {2}), from_values({3, 4}, {2})), 0.5 / 5);
  EXPECT_EQ(relative_l2(from_values({0, 2}, {2}), from_values({0, 0}, {2})), 2);
  EXPECT_TRUE(std::isnan(relative_l2(from_values({NAN, 4}, {2}), from_values({3, 4}, {2}))));
  EXPECT_THROW(relative_l2(empty({2}), empty({3})), Error);
}

TEST(Agreement, CheckedRowsSpanAllRows) {
  EXPECT_EQ(checked_rows(0), std::vector<int64_t>{});
  EXPECT_EQ(checked_rows(1), std::vector<int64_t>{0});
  EXPECT_EQ(checked_rows(3), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(checked_rows(71), (std::vector<int64_t>{0, 10, 20, 30, 40, 50, 60, 70}));
}

TEST(Agreement, ToleranceGrowsWithLayersAndLongF32Sums) {
  const auto layers = [](size_t n, int64_t k) {
    Model model;
    for (size_t i = 0; i <= n; ++i) model.stages.push_back({.weight = empty({1, k})});
    return model;
  };
  EXPECT_DOUBLE_EQ(tolerance_for(DType::bf16, layers(1, 64)).against_exact, 5e-3);
  EXPECT_DOUBLE_EQ(tolerance_for(DType::bf16, layers(4, 64)).against_exact, 2 * 5e-3);
  EXPECT_DOUBLE_EQ(tolerance_for(DType::f16, layers(1, 64)).against_exact, 7e-4);
  EXPECT_DOUBLE_EQ(tolerance_for(DType::f32, layers(1, 4096)).against_exact, 2e-6);
  EXPECT_DOUBLE_EQ(tolerance_for(DType::f32, layers(1, 4 * 4096)).against_exact, 2 * 2e-6);
}

// Where oneDNN is built in: it computes every kind of model. Elsewhere it says that it is not.
TEST(OnednnModel, AgreesWithTheExactRows) {
  const NoGrad no_grad;
  const Tensor x = randn({9, 24});
  Model model;
  for (const bool gated : {true, false}) {
    for (const nn::Norm norm : {nn::Norm::none, nn::Norm::rms, nn::Norm::layer}) {
      model = {};
      model.norm = norm;
      model.norm_eps = 1e-5;
      model.residual = gated;
      Stage first{.weight = randn({40, 24}), .bias = randn({40})};
      first.activation = gated ? nn::Activation::swiglu : nn::Activation::gelu;
      if (gated) first.up = randn({40, 24});
      model.stages = {first, {.weight = t(randn({40, 24})), .addend = randn({9, 24})}};
      std::unique_ptr<OnednnModel> peer;
      try {
        peer = std::make_unique<OnednnModel>(model, x);
      } catch (const Error& e) {
        ASSERT_HAS(std::string(e.what()), "not built in") << e.what();
        GTEST_SKIP() << e.what();
      }
      peer->run();
      peer->run();  // a second run must not read what the first one left
      const std::vector<int64_t> rows = checked_rows(9);
      EXPECT_LE(relative_l2(rows_of(peer->result(), rows), exact_rows(model, x, rows)), 2e-6)
          << "gated " << gated << ", norm " << nn::norm_name(norm);
      EXPECT_GE(peer->intermediate_bytes(), 9 * 40 * 4);
    }
  }
}

}  // namespace epilogue::bench::model_test
