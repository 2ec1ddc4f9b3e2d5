// SPDX-License-Identifier: Apache-2.0
// Compiled functions inside existing training loops: one node whose backward pass is compiled.
#include "epilogue/runtime.h"
#include "ops/op_testing.h"
#include "step_testing.h"
#include "support/test.h"

namespace epilogue::testing::recorded_test {

class Recorded : public SmallMlp {
 protected:
  std::vector<Tensor> gradients() {
    std::vector<Tensor> all;
    for (const Tensor& p : mlp_.parameters()) all.push_back(p.grad());
    mlp_.zero_grad();
    return all;
  }
};

// Plans of f64 ops, with everything that passes do to them: the tests of steps hold fused kernels
// to gradients in f64.
TEST(CompiledGradcheck, WholeBlocks) {
  for (const nn::Norm norm : {nn::Norm::none, nn::Norm::rms, nn::Norm::layer})
    for (const nn::Activation activation : {nn::Activation::geglu, nn::Activation::relu})
      for (const bool residual : {true, false}) {
        manual_seed(21);
        const auto block = nn::make_mlp({.dim = 4,
                                         .hidden = 6,
                                         .activation = activation,
                                         .bias = true,
                                         .norm = norm,
                                         .residual = residual});
        block->to(DType::f64);
        Tensor x = randn({3, 4}, DType::f64);
        x.set_requires_grad(true);
        std::vector<Tensor> inputs = block->parameters();
        inputs.push_back(x);
        Compiled compiled = compile(*block);
        const GradcheckResult result = gradcheck(
            [&](std::span<const Tensor>) { return std::vector<Tensor>{compiled(x)}; }, inputs);
        EXPECT_TRUE(result.ok) << nn::norm_name(norm) << ": " << result.message << "\n"
                               << compiled.dump(CompiledDump::plan);
        EXPECT_LE(compiled.stats().misses, 2) << "with gradients, and without for the differences";
      }
}

TEST_F(Recorded, GradientsOfATrainingLoopAreEagers) {
  mse(mlp_(x_), target_).backward();
  const std::vector<Tensor> want = gradients();
  Compiled compiled = compile(mlp_, {.packed = Packed::always});
  for (int i = 0; i < 2; ++i) {
    const Tensor y = compiled(x_);
    EXPECT_TRUE(y.requires_grad());
    expect_close(y.detach(), mlp_(x_).detach(), 1e-5, "result");
    mse(y, target_).backward();
    const std::vector<Tensor> got = gradients();
    for (size_t p = 0; p < want.size(); ++p)
      expect_close(got[p], want[p], 1e-6, compiled.dump(CompiledDump::plan));
  }
  EXPECT_EQ(compiled.stats().misses, 1);
  EXPECT_EQ(compiled.stats().kernels, 5) << "two chains, three products of weights";
}

TEST_F(Recorded, GradientsGoOnBeforeAndBehindIt) {
  Tensor x = randn({6, 16});
  x.set_requires_grad(true);
  const auto loss = [&](auto& f) { return mse(relu(f(gelu(x) * 2.0)), target_); };
  loss(mlp_).backward();
  const Tensor want = x.grad();
  const std::vector<Tensor> want_parameters = gradients();
  x.set_grad({});
  Compiled compiled = compile(mlp_);
  loss(compiled).backward();
  expect_close(x.grad(), want, 1e-6, "x");
  const std::vector<Tensor> got = gradients();
  for (size_t p = 0; p < got.size(); ++p) expect_close(got[p], want_parameters[p], 1e-6, "p");
}

TEST_F(Recorded, TwoCallsMayWaitForTheirBackwardPass) {
  const Tensor x2 = randn({6, 16});
  (mse(mlp_(x_), target_) + mse(mlp_(x2), target_)).backward();
  const std::vector<Tensor> want = gradients();
  Compiled compiled = compile(mlp_);
  (mse(compiled(x_), target_) + mse(compiled(x2), target_)).backward();
  const std::vector<Tensor> got = gradients();
  for (size_t p = 0; p < got.size(); ++p) expect_close(got[p], want[p], 1e-6, "p");
}

TEST_F(Recorded, WithAndWithoutGradientsAreTwoPlans) {
  Compiled compiled = compile(mlp_);
  EXPECT_TRUE(compiled(x_).requires_grad());
  {
    const NoGrad no_grad;
    EXPECT_FALSE(compiled(x_).requires_grad());
    EXPECT_EQ(compiled.stats().kernels, 1);
  }
  EXPECT_TRUE(compiled(x_).requires_grad());
  EXPECT_EQ(compiled.stats().misses, 2);
  for (Tensor p : mlp_.parameters()) p.set_requires_grad(false);
  EXPECT_FALSE(compiled(x_).requires_grad());
  EXPECT_EQ(compiled.stats().misses, 3);
}

TEST_F(Recorded, APlanOutlivesResetWhileAGraphNeedsIt) {
  Compiled compiled = compile(mlp_);
  const Tensor loss = mse(compiled(x_), target_);
  compiled.reset();
  loss.backward();
  EXPECT_TRUE(mlp_.up_proj.weight.grad().defined());
}

TEST_F(Recorded, WhatIsSavedIsFreedByTheWalk) {
  Compiled compiled = compile(mlp_);
  mse(compiled(x_), target_).backward();
  mlp_.zero_grad();
  const int64_t before = memory_stats().allocated_bytes;
  {
    const Tensor loss = mse(compiled(x_), target_);
    // g and u, at least, of 6 rows of 40.
    EXPECT_GE(memory_stats().allocated_bytes - before, 2 * 6 * 40 * 4);
    loss.backward();
    mlp_.zero_grad();
  }
  EXPECT_EQ(memory_stats().allocated_bytes, before);
}

TEST_F(Recorded, MisuseIsNamed) {
  Compiled compiled = compile(mlp_);
  const Tensor loss = mse(compiled(x_), target_);
  loss.backward();
  EXPECT_HAS(error_of([&] { loss.backward(); }), "a second time");
  const Tensor stale = mse(compiled(x_), target_);
  {
    const NoGrad no_grad;
    mul_(mlp_.down_proj.weight, 2.0);
  }
  EXPECT_HAS(error_of([&] { stale.backward(); }), "modified by an inplace");
  const Tensor twice = mse(compiled(x_), target_);
  EXPECT_HAS(error_of([&] { twice.backward({}, true, true); }), "no create_graph");
  Compiled two = compile([this](std::span<const Tensor> in) {
    return std::vector<Tensor>{mlp_(in[0]), in[0]};
  });
  const Tensor in[] = {x_};
  EXPECT_HAS(error_of([&] { two(in); }), "expected one result");
}

TEST(RecordedFunctions, IdentityAndAResultThatIsAnInputsView) {
  Tensor x = randn({3, 4});
  x.set_requires_grad(true);
  for (const bool transposed : {false, true}) {
    Compiled same = compile([transposed](std::span<const Tensor> in) {
      return std::vector<Tensor>{transposed ? t(in[0]) : in[0]};
    });
    const Tensor in[] = {x};
    const Tensor y = same(in)[0];
    EXPECT_FALSE(y.is_same(x));
    sum(y * y).backward();
    expect_close(x.grad(), (x * 2.0).detach(), 0, "2 x");
    x.set_grad({});
  }
}

}  // namespace epilogue::testing::recorded_test
