// SPDX-License-Identifier: Apache-2.0
// A compiled function follows what its modules hold, and takes any number of tensors.
#include "ops/op_testing.h"
#include "plan_testing.h"
#include "support/test.h"

namespace epilogue::testing::guards_test {

struct Scale : nn::Module {
  explicit Scale(double by) : Module("Scale"), factor(by) {}
  Tensor forward(const Tensor& x) const override { return x * factor; }
  double factor;
};

struct Outer : nn::Module {
  Outer() : Module("Outer") { register_module("inner", inner); }
  Tensor forward(const Tensor& x) const override { return inner(x) + 1.0; }
  Scale inner{3.0};
};

struct Cross : nn::Module {
  Cross() : Module("Cross") { register_module("left", left); }
  Tensor forward(const Tensor& a, const Tensor& b) const {
    return is_training() ? left(a) : left(a) * b;
  }
  nn::Linear left{4, 4};
};

class Guards : public ::testing::Test {
 protected:
  NoGrad no_grad_;
  Tensor x_ = randn({3, 4});
};

TEST_F(Guards, TheTrainingModeIsNoticed) {
  nn::Sequential model({std::make_shared<nn::Linear>(4, 4), std::make_shared<nn::Dropout>(0.5)});
  const Compiled c = compile(model);
  const Tensor trained = c(x_);
  EXPECT_GT(std::ranges::count(trained.to_vector(), 0.0), 0) << "dropout draws";
  model.eval();
  expect_close(c(x_), model(x_), 1e-6, "eval");
  model.train();
  EXPECT_EQ(c.stats().misses, 2);
  c(x_);
  EXPECT_EQ(c.stats().misses, 2) << "the first plan holds again";
}

TEST_F(Guards, AReplacedWeightIsNoticed) {
  nn::Linear l(4, 4);
  const Compiled c = compile(l);
  c(x_);
  l.weight = zeros({4, 4});
  expect_close(c(x_), l(x_), 0, "replaced");
  EXPECT_EQ(c.stats().misses, 2);
}

TEST_F(Guards, WhatALambdaCallsIsWatchedToo) {
  nn::Linear l(4, 4);
  nn::Dropout dropout(0.5);
  const Compiled c = compile([&](const Tensor& x) { return dropout(l(x)); });
  c(x_);
  l.bias = ones({4});
  dropout.eval();
  expect_close(c(x_), l(x_), 1e-6, "replaced in a lambda");
}

TEST_F(Guards, AttributesAreNoticed) {
  Scale scale(2.0);
  const Compiled c = compile(scale);
  c(x_);
  scale.factor = 5.0;
  expect_close(c(x_), x_ * 5.0, 0, "own");

  Outer outer;
  const Compiled nested = compile(outer);
  nested(x_);
  outer.inner.factor = 7.0;
  expect_close(nested(x_), x_ * 7.0 + 1.0, 1e-6, "a member's");

  auto held = std::make_shared<Scale>(2.0);
  nn::Sequential model({held});
  const Compiled sequential = compile(model);
  sequential(x_);
  held->factor = 9.0;
  expect_close(sequential(x_), x_ * 9.0, 0, "of a layer of Sequential");
  model.emplace<Scale>(2.0);
  expect_close(sequential(x_), x_ * 18.0, 0, "one layer more");
}

TEST_F(Guards, AModuleThatIsGoneMakesANewPlan) {
  auto l = std::make_unique<nn::Linear>(4, 4);
  const Compiled c = compile([&](const Tensor& x) { return (*l)(x); });
  c(x_);
  l = std::make_unique<nn::Linear>(4, 4);
  expect_close(c(x_), (*l)(x_), 1e-6, "another layer");
}

// A function that changes what is watched while it runs gets a plan each time, and ends.
TEST_F(Guards, AModuleThatCountsItsCallsStillWorks) {
  struct Counting : nn::Module {
    Counting() : Module("Counting") {}
    Tensor forward(const Tensor& x) const override { return x * static_cast<double>(++calls); }
    mutable int calls = 0;
  };
  Counting counting;
  const Compiled c = compile(counting, {.dynamic_rows = false});
  c(x_);
  EXPECT_NO_THROW(c(x_));
  EXPECT_EQ(c.stats().misses, 2);
}

TEST_F(Guards, SeveralInputsAndResults) {
  const Tensor y = randn({3, 4});
  const Compiled two = compile([](const Tensor& a, const Tensor& b) { return relu(a) * b; });
  expect_close(two(x_, y), relu(x_) * y, 0, "two inputs");
  const Compiled three =
      compile([](const Tensor& a, const Tensor& b, const Tensor& c) { return a * b + c; });
  expect_close(three(x_, y, x_), x_ * y + x_, 1e-6, "three inputs");
  const Compiled pair = compile([](const Tensor& a) { return std::pair(relu(a), a + 1.0); });
  const std::vector<Tensor> both = pair(std::span(&x_, 1));
  ASSERT_EQ(both.size(), 2U);
  expect_close(both[0], relu(x_), 0, "first");
  expect_close(both[1], x_ + 1.0, 0, "second");
  EXPECT_ERROR(pair(x_), "[compile] expected a function with 1 result(s), got 2");
  EXPECT_ERROR(two(x_), "[compile] expected 2 input(s), got 1");
}

TEST_F(Guards, ModulesOfTwoInputs) {
  Cross cross;
  const Tensor y = randn({3, 4});
  const Compiled c = compile(cross);
  expect_close(c(x_, y), cross.left(x_), 1e-6, "training");
  cross.eval();
  expect_close(c(x_, y), cross.left(x_) * y, 1e-6, "eval");
  EXPECT_ERROR(static_cast<nn::Module&>(cross)(x_),
               "[Cross] expected a class with a forward() of one tensor");
}

TEST_F(Guards, ResultsGoToTheCallersMemory) {
  nn::Linear l(4, 6);
  const Compiled c = compile([&](const Tensor& x) { return relu(l(x)); });
  const Tensor out = zeros({3, 6});
  const uint32_t version = out.version();
  c.run_into(x_, out);
  expect_close(out, relu(l(x_)), 1e-6, "into");
  EXPECT_GT(out.version(), version);
  const int64_t before = memory_stats().allocations;
  for (int i = 0; i < 10; ++i) c.run_into(x_, out);
  EXPECT_EQ(memory_stats().allocations, before);
  EXPECT_ERROR(c.run_into(x_, zeros({3, 5})),
               "[compile] expected a contiguous out of f32[3, 6] on cpu, got f32[3, 5]");
  const Compiled same = compile([](const Tensor& x) { return x + 1.0; });
  EXPECT_ERROR(
      same.run_into(x_, x_),
      "[compile] expected an out apart from the inputs, got f32[3, 4] that overlaps f32[3, 4]");
  // Columns of a table, and the memory of its first rows.
  const Tensor table = zeros({24});
  EXPECT_ERROR(
      same.run_into(slice(view(table, {4, 6}), 1, 0, 4), view(slice(table, 0, 0, 16), {4, 4})),
      "[compile] expected an out apart from the inputs, got f32[4, 4] that overlaps f32[4, 4]");
  // Results that are no memory of the plan's: an input, one value twice.
  const Compiled passes = compile([](const Tensor& x) {
    const Tensor y = relu(x);
    return std::array{x, y, y};
  });
  const std::array outs = {zeros({3, 4}), zeros({3, 4}), zeros({3, 4})};
  passes.run_into(std::span(&x_, 1), outs);
  expect_close(outs[0], x_, 0, "input");
  expect_close(outs[1], relu(x_), 0, "result");
  expect_close(outs[2], relu(x_), 0, "result again");
  const std::array twice = {outs[0], outs[1], outs[1]};
  EXPECT_ERROR(
      passes.run_into(std::span(&x_, 1), twice),
      "[compile] expected an out apart from the other results, got f32[3, 4] that overlaps "
      "f32[3, 4]");
}

}  // namespace epilogue::testing::guards_test
