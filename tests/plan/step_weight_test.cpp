// SPDX-License-Identifier: Apache-2.0
// Weighted losses: gradients of unequal micro-batches add up to those of the whole batch.
#include "epilogue/optim.h"
#include "ops/op_testing.h"
#include "ops/table_support.h"
#include "plan_testing.h"
#include "step_testing.h"

namespace epilogue::testing::step_weight_test {

using optim::micro_batches;
using optim::MicroBatch;

constexpr int64_t kRows = 10;

class StepWeight : public ::testing::Test {
 protected:
  static Tensor part_of(const Tensor& t, const MicroBatch& part) {
    return slice(t, 0, part.begin, part.end);
  }
  std::vector<Tensor> take_gradients() {
    std::vector<Tensor> gradients;
    for (const Tensor& p : mlp_.parameters()) gradients.push_back(p.grad());
    mlp_.zero_grad();
    return gradients;
  }
  void expect_gradients(const std::vector<Tensor>& expected) {
    const std::vector<Tensor> got = take_gradients();
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_LE(relative_l2(got[i], expected[i].to_vector()), 1e-6) << i;
  }

  nn::GatedMLP mlp_{16, 40};
  Tensor x_ = randn({kRows, 16});
  Tensor target_ = randn({kRows, 16});
};

TEST_F(StepWeight, UnequalMicroBatchesGiveTheGradientsOfTheBatch) {
  CompiledStep step = compile_step(mlp_, mse);
  const double loss = step(x_, target_).item();
  const std::vector<Tensor> expected = take_gradients();
  double total = 0;
  const std::vector<MicroBatch> parts = micro_batches(kRows, 4);  // 3, 3, 3 and 1 rows
  ASSERT_EQ(parts.size(), 4U);
  for (const MicroBatch& part : parts)
    total += step(part_of(x_, part), part_of(target_, part), part.share).item();
  EXPECT_NEAR(total, loss, 1e-6);
  expect_gradients(expected);
  EXPECT_EQ(step.stats().plans, 3);  // 10, 3 and 1 rows
}

TEST_F(StepWeight, TrainAndReceiversTakeWeightsToo) {
  CompiledStep step = compile_step(mlp_, mse);
  step(x_, target_);
  const std::vector<Tensor> expected = take_gradients();
  const Tensor inputs[] = {x_, target_};
  step(x_, target_, 0.25);
  step.train(
      x_, target_, [&] { expect_gradients(expected); }, 0.75);
  step.run(
      inputs,
      [&](std::span<const Tensor> leaves, std::span<const Tensor> gradients) {
        for (size_t i = 0; i < leaves.size(); ++i) leaves[i].set_grad(gradients[i] * 0.5);
      },
      2);
  expect_gradients(expected);
}

TEST_F(StepWeight, OnePlanServesAllWeights) {
  CompiledStep step = compile_step(mlp_, mse);
  const double loss = step(x_, target_, 0.5).item();
  EXPECT_NEAR(step(x_, target_, 0.25).item(), loss / 2, 1e-6);
  EXPECT_NEAR(step(x_, target_, -3).item(), -6 * loss, 1e-5);
  EXPECT_EQ(step.stats().plans, 1);
  EXPECT_NEAR(step(x_, target_).item(), 2 * loss, 1e-6);
  EXPECT_EQ(step.stats().plans, 2);
  EXPECT_ERROR(step(x_, target_, NAN), "[compile_step] expected a finite loss weight, got nan");
}

}  // namespace epilogue::testing::step_weight_test
