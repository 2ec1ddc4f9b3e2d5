// SPDX-License-Identifier: Apache-2.0
// Compiled training steps give eager's loss and gradients, in fewer kernels.
#include "ops/op_testing.h"
#include "ops/table_support.h"
#include "plan_testing.h"
#include "step_testing.h"
#include "support/test.h"

namespace epilogue::testing::step_test {

constexpr DType kFloatTypes[] = {DType::f32, DType::bf16, DType::f16};

TEST(CompiledStep, GradientsOfGatedMlpsAreEagers) {
  for (const DType dtype : kFloatTypes) {
    ErrorTally tally;
    for (const nn::Activation activation :
         {nn::Activation::geglu, nn::Activation::swiglu, nn::Activation::reglu})
      for (const Dims& sizes : {Dims{1, 33}, Dims{3, 33}, Dims{64, 33}, Dims{2, 67, 33}})
        expect_step_equals_eager(
            {{.dim = 33, .hidden = 71, .activation = activation}, sizes, dtype}, tally);
  }
}

TEST(CompiledStep, GradientsOfPlainMlpsAreEagers) {
  for (const DType dtype : kFloatTypes) {
    ErrorTally tally;
    for (const nn::Activation activation : {nn::Activation::gelu, nn::Activation::gelu_tanh,
                                            nn::Activation::relu, nn::Activation::silu})
      for (const int64_t layers : {1, 3})
        for (const bool bias : {false, true})
          for (const Dims& sizes : {Dims{1, 17}, Dims{5, 17}, Dims{300, 17}})
            expect_step_equals_eager({{.dim = 17,
                                       .hidden = 40,
                                       .layers = layers,
                                       .activation = activation,
                                       .bias = bias},
                                      sizes,
                                      dtype},
                                     tally);
  }
}

TEST(CompiledStep, GradientsThroughNormsAndResidualsAreEagers) {
  for (const DType dtype : kFloatTypes) {
    ErrorTally tally;
    for (const nn::Norm norm : {nn::Norm::none, nn::Norm::rms, nn::Norm::layer})
      for (const bool residual : {false, true})
        for (const nn::Activation activation : {nn::Activation::geglu, nn::Activation::relu})
          for (const Dims& sizes : {Dims{31, 24}, Dims{2, 40, 24}})
            expect_step_equals_eager({{.dim = 24,
                                       .hidden = 50,
                                       .activation = activation,
                                       .bias = true,
                                       .norm = norm,
                                       .residual = residual},
                                      sizes,
                                      dtype},
                                     tally);
  }
}

TEST(CompiledStep, WhatIsSavedDoesNotChangeTheGradients) {
  for (const DType dtype : kFloatTypes) {
    ErrorTally tally;
    for (const Saved saved : {Saved::automatic, Saved::save, Saved::recompute})
      for (const nn::Activation activation : {nn::Activation::geglu, nn::Activation::gelu})
        for (const nn::Norm norm : {nn::Norm::none, nn::Norm::rms})
          expect_step_equals_eager(
              {{.dim = 33, .hidden = 70, .activation = activation, .norm = norm, .residual = true},
               {50, 33},
               dtype,
               saved},
              tally);
  }
}

TEST(CompiledStep, ProductsOnUnpackedWeightsGiveTheSame) {
  for (const DType dtype : kFloatTypes) {
    ErrorTally tally;
    for (const Packed packed : {Packed::automatic, Packed::never})
      for (const nn::Activation activation : {nn::Activation::geglu, nn::Activation::gelu})
        for (const nn::Norm norm : {nn::Norm::none, nn::Norm::rms})
          expect_step_equals_eager({{.dim = 33,
                                     .hidden = 70,
                                     .activation = activation,
                                     .bias = true,
                                     .norm = norm,
                                     .residual = true},
                                    {50, 33},
                                    dtype,
                                    Saved::automatic,
                                    packed},
                                   tally);
  }
}

// 80 rows of [36, 18] and [18, 36]: m (n + k) is 4320, n k is 648; of 16 rows 864, less than 6
// times as many.
TEST(CompiledStep, WeightsAreLeftUnpackedWhereRowsAreFew) {
  nn::MLP mlp(18, 36, 1, nn::Activation::relu);
  CompiledStep step = compile_step(mlp, mse);
  step(randn({80, 18}), randn({80, 18}));
  EXPECT_EQ(count_of(step.dump(CompiledDump::plan), " = chain("), 2)
      << step.dump(CompiledDump::plan);
  step(randn({16, 18}), randn({16, 18}));
  EXPECT_EQ(count_of(step.dump(CompiledDump::plan), " = chain("), 0)
      << step.dump(CompiledDump::plan);
  EXPECT_HAS(step.explain(), "packing it anew pays from 72 rows on");
  // Inference packs once.
  Compiled inference = compile(mlp);
  const NoGrad no_grad;
  inference(randn({2, 18}));
  EXPECT_EQ(count_of(inference.dump(CompiledDump::plan), " = chain("), 1);
}

TEST(CompiledStep, EveryInstructionSetLevelGivesTheSameAnswer) {
  const test::IsaScope scope;
  for (const Isa level : available_isas()) {
    set_active_isa(level);
    for (const DType dtype : kFloatTypes) {
      ErrorTally tally;
      expect_step_equals_eager({{.dim = 40, .hidden = 65}, {37, 40}, dtype}, tally);
    }
  }
}

TEST(CompiledStep, EveryGradientOfManyElementsIsNoLessAccurateThanEagers) {
  for (const DType dtype : kFloatTypes) {
    ErrorTally tally;
    const StepCase c = {{.dim = 256, .hidden = 640}, {200, 256}, dtype};
    for (const ErrorPair& e : expect_step_equals_eager(c, tally))
      EXPECT_LE(e.ours, 1.05 * e.theirs) << describe(c);
  }
}

// One chain forward, the loss and its gradient, one chain backward, and a product for each
// weight.
TEST(CompiledStep, AGatedMlpIsTwoChainsAndThreeProducts) {
  nn::GatedMLP mlp(32, 80);
  CompiledStep step = compile_step(mlp, mse, {.packed = Packed::always});
  const Tensor x = randn({10, 32});
  step(x, randn({10, 32}));
  EXPECT_EQ(step.stats().kernels, 7) << step.explain();
  const std::string plan = step.dump(CompiledDump::plan);
  EXPECT_EQ(count_of(plan, " = chain("), 2) << plan;
  EXPECT_EQ(count_of(plan, "aten::mm("), 3) << plan;
  EXPECT_EQ(count_of(plan, "aten::gelu"), 0) << plan;
}

// Where x wants a gradient the backward chain ends in one product of both gradients.
TEST(CompiledStep, TheGradientOfTheInputIsOneStackedProduct) {
  nn::GatedMLP mlp(32, 80);
  CompiledStep step = compile_step(mlp, mse, {.packed = Packed::always});
  Tensor x = randn({10, 32});
  x.set_requires_grad(true);
  step(x, randn({10, 32}));
  EXPECT_EQ(step.stats().kernels, 7) << step.explain();
  EXPECT_EQ(count_of(step.dump(CompiledDump::plan), "stacked product"), 1)
      << step.dump(CompiledDump::plan);
  EXPECT_TRUE(x.grad().defined());
}

TEST(CompiledStep, TheBackwardPassOfADeepMlpIsOneChain) {
  nn::MLP mlp(32, 48, 4, nn::Activation::gelu);
  CompiledStep step = compile_step(mlp, mse, {.packed = Packed::always});
  step(randn({10, 32}), randn({10, 32}));
  const std::string plan = step.dump(CompiledDump::plan);
  EXPECT_EQ(count_of(plan, " = chain("), 2) << plan;
}

// The hidden layers' bias gradients are column sums of the backward chain; the last layer's is that
// of the loss's gradient, which the op makes.
TEST(CompiledStep, BiasGradientsStandBesideThoseOfTheRows) {
  nn::MLP mlp(32, 48, 3, nn::Activation::gelu, true);
  CompiledStep step = compile_step(mlp, mse, {.packed = Packed::always});
  step(randn({10, 32}), randn({10, 32}));
  const std::string plan = step.dump(CompiledDump::plan);
  EXPECT_EQ(count_of(plan, " = column_sum("), 3) << plan;
  EXPECT_EQ(count_of(plan, "aten::sum("), 1) << plan;
  EXPECT_HAS(step.explain(), "fuse_epilogues: aten::sum");
}

class StepGradients : public SmallMlp {};

TEST_F(StepGradients, CallsAccumulateAsBackwardDoes) {
  CompiledStep step = compile_step(mlp_, mse);
  step(x_, target_);
  const std::vector<double> once = mlp_.up_proj.weight.grad().to_vector();
  const Tensor kept = mlp_.up_proj.weight.grad();
  step(x_, target_);
  std::vector<double> twice = mlp_.up_proj.weight.grad().to_vector();
  for (size_t i = 0; i < once.size(); ++i) ASSERT_FLOAT_EQ(twice[i], 2 * once[i]);
  EXPECT_TRUE(kept.is_same(mlp_.up_proj.weight.grad())) << "added in place";
  mlp_.zero_grad();
  step(x_, target_);
  EXPECT_EQ(mlp_.up_proj.weight.grad().to_vector(), once) << "bit for bit";
}

TEST_F(StepGradients, MicroBatchesGiveTheGradientOfTheWholeBatch) {
  CompiledStep step = compile_step(
      [this](std::span<const Tensor> in) { return mse_loss(mlp_(in[0]), in[1], Reduction::sum); });
  step(x_, target_);
  const Tensor whole = clone(mlp_.gate_proj.weight.grad());
  mlp_.zero_grad();
  for (const auto& [begin, end] : {std::pair{0, 4}, {4, 6}})  // the last one is short
    step(slice(x_, 0, begin, end), slice(target_, 0, begin, end));
  expect_close(mlp_.gate_proj.weight.grad(), whole, 1e-4, "accumulated");
}

TEST_F(StepGradients, AReceiverGetsThemAndNoGradIsTouched) {
  CompiledStep step = compile_step(mlp_, mse);
  const Tensor in[] = {x_, target_};
  size_t received = 0;
  const Tensor loss =
      step.run(in, [&](std::span<const Tensor> leaves, std::span<const Tensor> gradients) {
        ASSERT_EQ(leaves.size(), gradients.size());
        for (size_t i = 0; i < leaves.size(); ++i) {
          EXPECT_EQ(leaves[i].sizes(), gradients[i].sizes());
          received += leaves[i].is_same(mlp_.gate_proj.weight) ||
                      leaves[i].is_same(mlp_.up_proj.weight) ||
                      leaves[i].is_same(mlp_.down_proj.weight);
        }
      });
  EXPECT_EQ(received, 3U);
  EXPECT_FALSE(loss.requires_grad());
  for (const Tensor& p : mlp_.parameters()) EXPECT_FALSE(p.grad().defined());
}

TEST_F(StepGradients, FrozenParametersGetNoneAndFreezingMakesANewPlan) {
  CompiledStep step = compile_step(mlp_, mse, {.packed = Packed::always});
  step(x_, target_);
  EXPECT_EQ(count_of(step.dump(CompiledDump::plan), "aten::mm("), 3);
  mlp_.zero_grad();
  mlp_.gate_proj.weight.set_requires_grad(false);
  step(x_, target_);
  EXPECT_EQ(step.stats().misses, 2);
  EXPECT_FALSE(mlp_.gate_proj.weight.grad().defined());
  EXPECT_TRUE(mlp_.up_proj.weight.grad().defined());
  EXPECT_EQ(count_of(step.dump(CompiledDump::plan), "aten::mm("), 2);
}

TEST_F(StepGradients, TrainingFollowsEagerStepByStep) {
  const auto run = [&](bool compiled) {
    manual_seed(3);
    nn::GatedMLP mlp(16, 40);
    CompiledStep step = compile_step(mlp, mse);
    std::vector<double> losses;
    for (int i = 0; i < 20; ++i) {
      Tensor loss;
      if (compiled) {
        loss = step(x_, target_);
      } else {
        loss = mse(mlp(x_), target_);
        loss.backward();
      }
      losses.push_back(loss.item());
      const NoGrad no_grad;
      for (const Tensor& p : mlp.parameters()) add_(p, p.grad(), -0.5);
      mlp.zero_grad();
    }
    EXPECT_EQ(step.stats().misses, compiled ? 1 : 0);
    return losses;
  };
  const std::vector<double> eager = run(false);
  const std::vector<double> compiled = run(true);
  EXPECT_LT(eager.back(), 0.9 * eager.front());
  for (size_t i = 0; i < eager.size(); ++i) EXPECT_NEAR(compiled[i], eager[i], 1e-5 * eager[i]);
}

// Mixed precision by hand: f32 weights, cast to bf16 for the products.
TEST_F(StepGradients, CastWeightsAreProductsAndFollowTheirMasters) {
  const auto loss = [this](std::span<const Tensor> in) {
    const auto half = [](const Tensor& t) { return to(t, DType::bf16); };
    const Tensor x = half(in[0]);
    const Tensor h = gelu(linear(x, half(mlp_.gate_proj.weight)), Gelu::tanh) *
                     linear(x, half(mlp_.up_proj.weight));
    return mse_loss(to(linear(h, half(mlp_.down_proj.weight)), DType::f32), in[1]);
  };
  CompiledStep step = compile_step(loss, {.packed = Packed::always});
  const Tensor in[] = {x_, target_};
  for (int i = 0; i < 3; ++i) {
    loss(in).backward();
    std::vector<Tensor> want;
    for (const Tensor& p : mlp_.parameters()) want.push_back(p.grad());
    mlp_.zero_grad();
    step(in);
    const NoGrad no_grad;
    for (size_t p = 0; p < want.size(); ++p) {
      const Tensor parameter = mlp_.parameters()[p];
      EXPECT_EQ(parameter.grad().dtype(), DType::f32);
      EXPECT_LE(relative_l2(parameter.grad(), want[p].to_vector()), 8e-3) << i;
      add_(parameter, want[p], -1);
    }
    mlp_.zero_grad();
  }
  EXPECT_EQ(step.stats().misses, 1);
  const std::string plan = step.dump(CompiledDump::plan);
  EXPECT_EQ(count_of(plan, " = chain("), 2) << plan;
}

TEST_F(StepGradients, NoRowsGiveWhatEagerGives) {
  CompiledStep step = compile_step(
      [this](std::span<const Tensor> in) { return mse_loss(mlp_(in[0]), in[1], Reduction::sum); });
  EXPECT_EQ(step(zeros({0, 16}), zeros({0, 16})).item(), 0);
  for (const Tensor& p : mlp_.parameters())
    for (const double g : p.grad().to_vector()) ASSERT_EQ(g, 0);
}

TEST_F(StepGradients, CrossEntropyAndSharedWeights) {
  const Tensor labels = randint(0, 16, {6});
  const auto loss = [&](std::span<const Tensor> in) {
    return cross_entropy(mlp_(mlp_(in[0]) + in[0]), in[1]);
  };
  const Tensor in[] = {x_, labels};
  const Tensor want_loss = loss(in);
  want_loss.backward();
  std::vector<Tensor> want;
  for (const Tensor& p : mlp_.parameters()) want.push_back(p.grad());
  mlp_.zero_grad();
  CompiledStep step = compile_step(loss);
  expect_close(step(in), want_loss.detach(), 1e-6, "loss");
  for (size_t i = 0; i < want.size(); ++i)
    expect_close(mlp_.parameters()[i].grad(), want[i], 1e-6, step.dump(CompiledDump::plan));
}

TEST_F(StepGradients, RecomputingTakesLessMemoryThanSaving) {
  // Blocks in a row: what each saves lives until its own backward pass.
  nn::Sequential model;
  for (int i = 0; i < 3; ++i)
    model.add(nn::make_mlp({.dim = 16, .hidden = 128, .norm = nn::Norm::rms, .residual = true}));
  CompiledStep step = compile_step(model, mse, {.packed = Packed::always});
  step(x_, target_);
  const StepMemory m = step.memory();
  EXPECT_EQ(m.planned_bytes, m.automatic_bytes);
  EXPECT_EQ(m.planned_bytes, step.stats().intermediate_bytes);
  // Per block, of 6 rows of 128: save keeps g, u, gelu(g) and h; automatic g and u.
  EXPECT_LT(m.automatic_bytes, m.save_bytes - 3 * 6 * 128 * 4);
  EXPECT_LT(m.recompute_bytes, m.automatic_bytes);
}

TEST_F(StepGradients, TheCostModelSaysWhy) {
  const auto has = [](const CompiledStep& step, const std::string& what,
                      const std::string& reason) {
    for (const FusionNote& n : step.notes())
      if (n.pass == "recompute_saved" && n.what.find(what) != std::string::npos &&
          n.reason.find(reason) != std::string::npos)
        return true;
    return false;
  };
  CompiledStep automatic = compile_step(mlp_, mse, {.packed = Packed::always});
  automatic(x_, target_);
  EXPECT_TRUE(has(automatic, "aten::gelu", "")) << automatic.explain();
  EXPECT_TRUE(has(automatic, "product", "it takes")) << automatic.explain();
  CompiledStep save = compile_step(mlp_, mse, {.saved = Saved::save, .packed = Packed::always});
  save(x_, target_);
  EXPECT_TRUE(has(save, "aten::gelu", "not asked for")) << save.explain();
}

TEST(CompiledStepErrors, MisuseIsNamed) {
  nn::GatedMLP mlp(8, 16);
  const Tensor x = randn({2, 8});
  const auto message = [&](CompiledStep step, std::vector<Tensor> in) {
    return error_of([&] { step(in); });
  };
  EXPECT_HAS(message(compile_step(mlp, mse), {x}), "expected x and target, got 1 inputs");
  EXPECT_HAS(message(compile_step([&](std::span<const Tensor> in) { return mlp(in[0]); }), {x}),
             "only for scalar outputs");
  EXPECT_HAS(message(compile_step([](std::span<const Tensor> in) { return sum(in[0]); }), {x}),
             "expected an output that requires a gradient");
  EXPECT_EQ(message(compile_step(
                        [&](std::span<const Tensor> in) { return sum(mlp(add_(in[0], in[0]))); }),
                    {x}),
            "[compile] expected ops that write nothing in place, got aten::add_");
  EXPECT_HAS(message(compile_step(mlp, mse), {mlp(x), x}), "expected leaves as inputs");
  const Tensor past = mlp.gate_proj.weight * 2.0;
  EXPECT_HAS(
      message(compile_step([&](std::span<const Tensor> in) { return sum(linear(in[0], past)); }),
              {x}),
      "whose tensors are leaves");
  EXPECT_HAS(error_of([&] { compile_step(mlp, mse, {.collapse_linears = true}); }),
             "expected collapse_linears off");
  for (const Tensor& p : mlp.parameters()) EXPECT_FALSE(p.grad().defined());
}

}  // namespace epilogue::testing::step_test
