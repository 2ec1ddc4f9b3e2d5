// SPDX-License-Identifier: Apache-2.0
// The generator: known answers, reproducibility, bounds and moments.
#include "core/random.h"

#include "base/philox.h"
#include "epilogue/runtime.h"
#include "errors/message_of.h"
#include "support/test.h"

namespace epilogue::random_test {

using Words = std::array<uint32_t, 4>;

// kat_vectors of Random123.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint64_t kOnes = ~uint64_t{0};
  EXPECT_EQ(philox4x32(kOnes, kOnes, kOnes),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

class Random : public testing::Test {
 protected:
  void SetUp() override { manual_seed(42); }
  void TearDown() override { set_num_threads(threads_); }

 private:
  int threads_ = num_threads();
};

std::vector<std::vector<double>> draw_everything() {
  manual_seed(7);
  constexpr int64_t n = 100'003;  // several pieces per thread, and a rest of 3 of 4
  const Tensor coins = empty({n});
  fill_bernoulli(coins, 0.25);
  return {rand({n}).to_vector(), randn({n}, DType::bf16).to_vector(),
          uniform({n}, -3, 5, DType::f64).to_vector(), randint(-7, 9, {n}).to_vector(),
          coins.to_vector()};
}

TEST_F(Random, SameNumbersForEveryNumberOfThreads) {
  set_num_threads(1);
  const auto one = draw_everything();
  set_num_threads(2);
  EXPECT_TRUE(draw_everything() == one);
  set_num_threads(5);
  EXPECT_TRUE(draw_everything() == one);
}

TEST_F(Random, SeedsAndDrawsDiffer) {
  const auto first = rand({64}).to_vector();
  EXPECT_NE(rand({64}).to_vector(), first);
  manual_seed(43);
  EXPECT_NE(rand({64}).to_vector(), first);
  manual_seed(42);
  EXPECT_EQ(rand({64}).to_vector(), first);
}

TEST_F(Random, StateIsSavedAndRestored) {
  rand({5});
  const RngState state = rng_state();
  const auto expected = randn({9}).to_vector();
  rand({1000});
  set_rng_state(state);
  EXPECT_EQ(randn({9}).to_vector(), expected);
  EXPECT_EQ(rng_state().seed, 42U);
}

TEST_F(Random, DrawsOfUnevenSizesDoNotOverlap) {
  std::set<double> seen;
  size_t drawn = 0;
  for (const int64_t n : {1, 2, 3, 4, 5, 7, 0, 1}) {
    for (const double x : rand({n}, DType::f64).to_vector()) seen.insert(x);
    drawn += static_cast<size_t>(n);
  }
  EXPECT_EQ(seen.size(), drawn);
}

// Half-open also where rounding to the dtype could reach the upper bound.
TEST_F(Random, UniformStaysBelowItsUpperBound) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const auto& [low, high] : {std::pair{0.0, 1.0}, {-1.0, 0.0}, {3.0, 3.5}, {-2.0, -1.0}}) {
      for (const double x : uniform({200'000}, low, high, dtype).to_vector()) {
        ASSERT_GE(x, low) << dtype_name(dtype);
        ASSERT_LT(x, high) << dtype_name(dtype);
      }
    }
  }
}

struct Moments {
  double mean = 0;
  double variance = 0;
};
Moments moments(const Tensor& t) {
  Moments m;
  const auto values = t.to_vector();
  const auto n = static_cast<double>(values.size());
  for (const double x : values) m.mean += x / n;
  for (const double x : values) m.variance += (x - m.mean) * (x - m.mean) / n;
  return m;
}
constexpr int64_t kMany = 1'000'000;
// Five standard errors.
double within(double variance) { return 5 * std::sqrt(variance / kMany); }

TEST_F(Random, MomentsOfUniform) {
  const Moments m = moments(rand({kMany}));
  EXPECT_NEAR(m.mean, 0.5, within(1.0 / 12));
  EXPECT_NEAR(m.variance, 1.0 / 12, within(1.0 / 180));  // Var((x - 1/2)^2) = 1/180
}

TEST_F(Random, MomentsOfNormal) {
  const Tensor t = empty({kMany});
  fill_normal(t, 3, 2);
  const Moments m = moments(t);
  EXPECT_NEAR(m.mean, 3, within(4));
  EXPECT_NEAR(m.variance, 4, within(32));  // Var((x - mu)^2) = 2 sigma^4
  // Neighbours come from one Box-Muller pair and must not be correlated.
  double product = 0;
  const float* x = t.data_as<float>();
  for (int64_t i = 0; i + 1 < kMany; i += 2) product += (x[i] - 3.0) * (x[i + 1] - 3.0);
  EXPECT_NEAR(product / (kMany / 2), 0, std::sqrt(2) * within(16));
}

TEST_F(Random, Bernoulli) {
  const Tensor t = empty({kMany});
  fill_bernoulli(t, 0.3);
  EXPECT_NEAR(moments(t).mean, 0.3, within(0.21));
  const std::set<double> expected = {0, 1};
  const auto values = t.to_vector();
  EXPECT_EQ(std::set<double>(values.begin(), values.end()), expected);
  fill_bernoulli(t, 0);
  EXPECT_EQ(t.to_vector(), std::vector<double>(kMany, 0.0));
  fill_bernoulli(t, 1);
  EXPECT_EQ(t.to_vector(), std::vector<double>(kMany, 1.0));
}

TEST_F(Random, RandintReachesEveryNumber) {
  const auto values = randint(-2, 3, {10'000}).to_vector();
  EXPECT_EQ(std::set<double>(values.begin(), values.end()), (std::set<double>{-2, -1, 0, 1, 2}));
  const auto constant = randint(4, 5, {100}).to_vector();
  EXPECT_EQ(std::set<double>(constant.begin(), constant.end()), std::set<double>{4});
}

// More numbers than 24 bits can name: the low bits must be random too.
TEST_F(Random, RandintOfWideRanges) {
  const Tensor wide = randint(0, int64_t{1} << 40, {1000});
  int odd = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t x = wide.data_as<int64_t>()[i];
    ASSERT_TRUE(x >= 0 && x < int64_t{1} << 40);
    odd += static_cast<int>(x & 1);
  }
  EXPECT_GT(odd, 400);
  EXPECT_LT(odd, 600);
  const Tensor all = randint(INT64_MIN, INT64_MAX, {1000});
  int negative = 0;
  for (int64_t i = 0; i < 1000; ++i) negative += all.data_as<int64_t>()[i] < 0 ? 1 : 0;
  EXPECT_GT(negative, 400);
  EXPECT_LT(negative, 600);
}

TEST_F(Random, EmptyDrawsAreFine) {
  EXPECT_EQ(rand({0, 3}).numel(), 0);
  EXPECT_EQ(randint(0, 2, {0}).numel(), 0);
}

TEST_F(Random, Misuse) {
  EXPECT_ERROR(rand({2}, DType::i64), "[rand] expected a floating dtype, got i64");
  EXPECT_ERROR(uniform({2}, 0, 1, DType::u8), "[uniform] expected a floating dtype, got u8");
  EXPECT_ERROR(randn({2}, DType::boolean), "[randn] expected a floating dtype, got bool");
  EXPECT_ERROR(randint(3, 3, {2}), "[randint] expected low < high, got 3 and 3");
}

}  // namespace epilogue::random_test
