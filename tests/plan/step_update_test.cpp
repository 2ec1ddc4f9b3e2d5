// SPDX-License-Identifier: Apache-2.0
// CompiledStep::train(): updates on gradients in the plan's own memory.
#include "ops/op_testing.h"
#include "plan_testing.h"
#include "step_testing.h"

namespace epilogue::testing::step_update_test {

class StepUpdates : public SmallMlp {};

TEST_F(StepUpdates, UpdatesOnThePlansOwnGradientsFollowEager) {
  const auto run = [&](bool compiled) {
    manual_seed(3);
    nn::GatedMLP mlp(16, 40, nn::Activation::geglu, true);
    CompiledStep step = compile_step(mlp, mse);
    const auto update = [&] {
      const NoGrad no_grad;
      for (const Tensor& p : mlp.parameters()) add_(p, p.grad(), -0.5);
    };
    for (int i = 0; i < 20; ++i) {
      if (compiled) {
        step.train(x_, target_, update);
        for (const Tensor& p : mlp.parameters()) EXPECT_FALSE(p.grad().defined());
        continue;
      }
      mse(mlp(x_), target_).backward();
      update();
      mlp.zero_grad();
    }
    std::vector<Tensor> weights;
    for (const Tensor& p : mlp.parameters()) weights.push_back(p.detach());
    return weights;
  };
  const std::vector<Tensor> eager = run(false);
  const std::vector<Tensor> compiled = run(true);
  for (size_t i = 0; i < eager.size(); ++i) expect_close(compiled[i], eager[i], 1e-5, "weight");
}

// What a function gives beside its loss comes out too, and no gradient flows from it.
TEST_F(StepUpdates, FurtherResultsReachTheUpdateAndTheCaller) {
  CompiledStep plain = compile_step(mlp_, mse);
  CompiledStep step([&](std::span<const Tensor> in) {
    const Tensor y = mlp_(in[0]);
    return std::vector<Tensor>{mse(y, in[1]), y};
  });
  const Tensor in[] = {x_, target_};
  std::vector<Tensor> gradients;
  plain.train(x_, target_, [&] {
    for (const Tensor& p : mlp_.parameters()) gradients.push_back(clone(p.grad()));
  });
  const Tensor expected = mlp_(x_).detach();
  for (const bool updates : {false, true}) {
    std::vector<Tensor> seen;
    const auto update = [&](std::span<const Tensor> results) {
      seen.assign(results.begin(), results.end());
      const std::vector<Tensor> parameters = mlp_.parameters();
      for (size_t i = 0; i < parameters.size(); ++i)
        EXPECT_LT(relative_l2(parameters[i].grad(), gradients[i].to_vector()), 1e-5);
    };
    const std::vector<Tensor> results =
        updates ? step.results(in, update, 1.0) : step.results(in, {}, 0.5);
    ASSERT_EQ(results.size(), 2U);
    EXPECT_LT(relative_l2(results[1], expected.to_vector()), 1e-5);
    EXPECT_EQ(seen.size(), updates ? 2U : 0U);
    mlp_.zero_grad();
  }
}

TEST_F(StepUpdates, TheLastMicroBatchOfAnUpdateAddsToTheOthers) {
  CompiledStep step = compile_step(mlp_, mse);
  mse(mlp_(x_), target_).backward();
  std::vector<Tensor> want;
  for (const Tensor& p : mlp_.parameters()) want.push_back(p.grad() * 3.0);
  mlp_.zero_grad();
  for (const bool trains_first : {false, true}) {
    if (trains_first) step.reset();  // then the plan keeps its gradients from the first call on
    if (trains_first) step.train(x_, target_, [] {});
    step(x_, target_);
    step(x_, target_);
    bool updated = false;
    step.train(x_, target_, [&] {
      updated = true;
      for (size_t i = 0; i < want.size(); ++i)
        expect_close(mlp_.parameters()[i].grad(), want[i], 1e-6, "gradient");
    });
    EXPECT_TRUE(updated);
    for (const Tensor& p : mlp_.parameters()) EXPECT_FALSE(p.grad().defined());
  }
}

// d loss / d w is x itself, and w and v have one gradient: neither may be written by who scales
// .grad.
TEST_F(StepUpdates, GradientsThatAreNotThePlansOwnAreCopies) {
  Tensor w = randn({6, 16});
  Tensor v = randn({6, 16});
  w.set_requires_grad(true);
  v.set_requires_grad(true);
  CompiledStep step =
      compile_step([&](std::span<const Tensor> in) { return sum((w + v) * in[0]); });
  const Tensor before = clone(x_);
  const Tensor in[] = {x_};
  for (int i = 0; i < 2; ++i)
    step.train(in, [&] {
      const NoGrad no_grad;
      for (const Tensor& leaf : {w, v}) mul_(leaf.grad(), 2.0);
      expect_close(w.grad(), before * 2.0, 1e-6, "w");
      expect_close(v.grad(), before * 2.0, 1e-6, "v");
    });
  expect_close(x_, before, 0, "x");
}

TEST_F(StepUpdates, AnUpdateThatThrowsLeavesNoGradients) {
  CompiledStep step = compile_step(mlp_, mse);
  EXPECT_THROW(step.train(x_, target_, [] { throw Error("[update] expected none, got one"); }),
               Error);
  for (const Tensor& p : mlp_.parameters()) EXPECT_FALSE(p.grad().defined());
  step.train(x_, target_, [&] { EXPECT_TRUE(mlp_.gate_proj.weight.grad().defined()); });
}

// Beside what both need they are three gradients of [16, 40].
TEST_F(StepUpdates, ThePlansOwnGradientsShareMemoryWithWhatWasNeededBefore) {
  CompiledStep handed_out = compile_step(mlp_, mse, {.packed = Packed::always});
  handed_out(x_, target_);
  CompiledStep kept = compile_step(mlp_, mse, {.packed = Packed::always});
  kept.train(x_, target_, [] {});
  const int64_t gradients = 3 * 16 * 40 * 4;
  EXPECT_GE(kept.stats().intermediate_bytes, gradients);
  EXPECT_LT(kept.stats().intermediate_bytes, handed_out.stats().intermediate_bytes + gradients);
}

TEST_F(StepUpdates, MisuseIsNamed) {
  EXPECT_ERROR(compile_step(CompiledStep::Loss()),
               "[compile_step] expected a loss, got an empty function");
  CompiledStep step = compile_step(mlp_, mse);
  EXPECT_ERROR(step.train(x_, target_, {}),
               "[compile_step] expected an update, got an empty function");
  EXPECT_ERROR(step.run(std::array{x_, target_}, {}),
               "[compile_step] expected a receiver, got an empty function");
  EXPECT_ERROR(
      step.train(x_, target_, [&] { step.train(x_, target_, [] {}); }),
      "[compile_step] expected one call at a time of a compiled step and its copies, got one "
      "during another: give each thread its own compile_step()");
  const CompiledStep taken = std::move(step);
  EXPECT_ERROR(step(x_, target_),  // NOLINT(bugprone-use-after-move)
               "[compile_step] expected a compiled step, got one that was moved from");
}

}  // namespace epilogue::testing::step_update_test
