// SPDX-License-Identifier: Apache-2.0
// When plans are made, when they are used again, and what a call costs in memory.
#include "epilogue/runtime.h"
#include "ops/autocast.h"
#include "ops/op_testing.h"
#include "plan_testing.h"
#include "support/test.h"

namespace epilogue::testing::cache_test {

Tensor gated(const nn::GatedMLP& mlp, const Tensor& x) { return mlp(x); }

class PlanCache : public ::testing::Test {
 protected:
  NoGrad no_grad_;
  nn::GatedMLP mlp_{32, 80};
};

TEST_F(PlanCache, OnePlanServesEveryNumberOfRows) {
  Compiled compiled = compile(mlp_);
  for (const int64_t rows : {7, 1, 0, 300, 7}) {
    const Tensor x = randn({rows, 32});
    const Tensor y = compiled(x);
    EXPECT_EQ(y.sizes(), (Dims{rows, 32}));
    expect_close(y, gated(mlp_, x), 1e-5, std::to_string(rows) + " rows");
  }
  EXPECT_EQ(compiled.stats().calls, 5);
  EXPECT_EQ(compiled.stats().misses, 1);
}

TEST_F(PlanCache, OnePlanServesIntermediatesOfEveryNumberOfRows) {
  // Without row chains the hidden activations lie in the arena, which has to grow.
  Compiled compiled = compile(mlp_, {.skip = {"form_row_chains"}});
  for (const int64_t rows : {3, 200, 5}) {
    const Tensor x = randn({rows, 32});
    expect_close(compiled(x), gated(mlp_, x), 1e-5, std::to_string(rows) + " rows");
    EXPECT_EQ(compiled.stats().intermediate_bytes, (rows * 80 * 4 + 63) / 64 * 64);
  }
  EXPECT_EQ(compiled.stats().misses, 1);
}

// One row more is no proof for others: each number of rows is captured once.
TEST(CompiledRows, AFunctionThatAsksForItsRowsGetsAPlanForEachAnswer) {
  const NoGrad no_grad;
  int captures = 0;
  const auto f = [&captures](const Tensor& x) {
    ++captures;
    if (x.size(0) > 500) throw std::invalid_argument("at most 500 rows");
    return relu(x) * (x.size(0) <= 64 ? 1.0 : 0.5);
  };
  Compiled compiled = compile(f);
  for (const int64_t rows : {4, 65, 200, 4, 64, 65, 1, 0}) {
    const Tensor x = randn({rows, 8});
    expect_close(compiled(x), f(x), 0, std::to_string(rows) + " rows");
  }
  EXPECT_EQ(compiled.stats().misses, 2);
  for (int round = 0; round < 2; ++round) {
    captures = 0;
    for (const int64_t rows : {4, 65, 200, 64, 1, 0}) compiled(randn({rows, 8}));
  }
  EXPECT_EQ(captures, 0) << "both plans know all of them";
  EXPECT_THROW(compiled(ones({501, 8})), std::invalid_argument) << "as the function does";
  EXPECT_EQ(compile(f)(ones({500, 8})).to_vector(), std::vector<double>(4000, 0.5))
      << "one row more is not asked for";
}

TEST_F(PlanCache, WritesWithoutOpsAreSeenWhereTheyAreTold) {
  Compiled compiled = compile(mlp_);
  const Tensor x = randn({9, 32});
  compiled(x);
  auto* const w = mlp_.down_proj.weight.data_as<float>();
  for (int64_t i = 0; i < mlp_.down_proj.weight.numel(); ++i) w[i] = static_cast<float>(i % 3);
  mlp_.down_proj.weight.increment_version();
  expect_close(compiled(x), gated(mlp_, x), 1e-5, "the weights as they are");
  EXPECT_EQ(compiled.stats().misses, 1);
}

TEST_F(PlanCache, WithoutDynamicRowsEverySizeIsAMiss) {
  Compiled compiled = compile(mlp_, {.dynamic_rows = false});
  for (const int64_t rows : {7, 1, 7, 7}) compiled(randn({rows, 32}));
  EXPECT_EQ(compiled.stats().misses, 2);
  EXPECT_EQ(compiled.stats().plans, 2);
}

// The casts are part of the graph: a plan holds inside regions like the one that it was made in.
TEST_F(PlanCache, AutocastRegionsHavePlansOfTheirOwn) {
  Compiled compiled = compile(mlp_);
  const Tensor x = randn({6, 32});
  EXPECT_EQ(compiled(x).dtype(), DType::f32);
  {
    const AutocastScope region(DeviceType::cpu, {true, DType::bf16}, true);
    const Tensor eager = gated(mlp_, x);
    ASSERT_EQ(eager.dtype(), DType::bf16);
    const Tensor y = compiled(x);
    expect_close(y, eager, 0.02, "inside");
    fill_(mlp_.down_proj.weight.detach(), 0);  // no stale cast is in the plan
    for (const double v : compiled(x).to_vector()) EXPECT_EQ(v, 0);
  }
  EXPECT_EQ(compiled(x).dtype(), DType::f32);
  EXPECT_EQ(compiled.stats().misses, 2);
}

TEST_F(PlanCache, AnotherDtypeRankOrStrideIsAMissThatIsCounted) {
  Compiled compiled = compile(mlp_);
  const Tensor x = randn({6, 32});
  compiled(x);
  compiled(randn({2, 3, 32}));
  EXPECT_EQ(compiled.stats().misses, 2);
  const Tensor strided = slice(randn({6, 64}), 1, 0, 32);
  expect_close(compiled(strided), gated(mlp_, strided), 1e-5, "slice");
  EXPECT_EQ(compiled.stats().misses, 3);
  mlp_.to(DType::bf16);
  compiled(to(x, DType::bf16));
  EXPECT_EQ(compiled.stats().misses, 4);
}

TEST_F(PlanCache, TheNumberOfRowsInsideTheFunctionMakesAPlanForThatNumberOnly) {
  Compiled compiled = compile([](std::span<const Tensor> in) {
    return std::vector<Tensor>{neg(mul(in[0], 1.0 / static_cast<double>(in[0].size(0))))};
  });
  for (const int64_t rows : {2, 4, 8}) {
    const Tensor x = ones({rows, 3});
    const Tensor in[] = {x};
    EXPECT_EQ(compiled(in)[0].to_vector()[0], -1.0 / static_cast<double>(rows));
  }
  EXPECT_EQ(compiled.stats().misses, 3);
}

TEST_F(PlanCache, TheLeastRecentlyUsedPlanGoes) {
  Compiled compiled = compile(mlp_, {.dynamic_rows = false, .max_plans = 2});
  for (const int64_t rows : {1, 2, 1, 3, 1}) compiled(randn({rows, 32}));
  EXPECT_EQ(compiled.stats().misses, 3) << "1 was used after 2, so that 2 went";
  compiled(randn({2, 32}));
  EXPECT_EQ(compiled.stats().misses, 4);
  EXPECT_EQ(compiled.stats().plans, 2);
}

TEST_F(PlanCache, WeightsWrittenInPlaceAreSeenWithoutANewPlan) {
  Compiled compiled = compile(mlp_);
  const Tensor x = randn({5, 32});
  const Tensor before = compiled(x);
  copy_(mlp_.up_proj.weight, randn({80, 32}));
  const Tensor after = compiled(x);
  EXPECT_NE(before.to_vector(), after.to_vector());
  expect_close(after, gated(mlp_, x), 1e-4, "written weight");
  EXPECT_EQ(compiled.stats().misses, 1);
}

TEST_F(PlanCache, ParametersThatMovedToOtherMemoryMakeANewPlan) {
  Compiled compiled = compile(mlp_);
  const Tensor x = randn({5, 32});
  const Tensor before = compiled(x);
  mlp_.to(DType::bf16);
  mlp_.to(DType::f32);  // the same dtype as at first, other numbers at other addresses
  const Tensor after = compiled(x);
  EXPECT_NE(before.to_vector(), after.to_vector());
  expect_close(after, gated(mlp_, x), 1e-5, "moved weights");
  EXPECT_EQ(compiled.stats().misses, 2);
}

TEST_F(PlanCache, ResultsAreTheSameBitForBitFromCallToCall) {
  for (const int64_t rows : {1, 9, 200}) {
    const Tensor x = randn({rows, 32});
    Compiled first = compile(mlp_);
    const std::vector<double> values = first(x).to_vector();
    EXPECT_EQ(first(x).to_vector(), values);
    EXPECT_EQ(compile(mlp_)(x).to_vector(), values);
  }
}

TEST_F(PlanCache, AfterTheFirstCallOnlyTheResultIsAllocated) {
  for (const std::vector<std::string>& skip :
       {std::vector<std::string>{}, {"form_row_chains", "fuse_epilogues"}}) {
    Compiled compiled = compile(mlp_, {.skip = skip});
    const Tensor x = randn({64, 32});
    compiled(x);
    const int64_t before = memory_stats().allocations;
    const int64_t live = memory_stats().allocated_bytes;
    for (int i = 0; i < 10; ++i) compiled(x);
    EXPECT_EQ(memory_stats().allocations - before, 10);
    EXPECT_EQ(memory_stats().allocated_bytes, live);
  }
}

TEST_F(PlanCache, ACallInsideACompiledFunctionBecomesPartOfIt) {
  Compiled inner = compile(mlp_);
  const Tensor x = randn({4, 32});
  inner(x);
  Compiled outer = compile([inner](std::span<const Tensor> in) mutable {
    return std::vector<Tensor>{add(inner(in[0]), in[0])};
  });
  const Tensor in[] = {x};
  expect_close(outer(in)[0], gated(mlp_, x) + x, 1e-5, "nested");
  EXPECT_EQ(outer.stats().kernels, 1);
}

TEST(CompileErrors, WhatOneRunCannotTellIsRefused) {
  const NoGrad no_grad;
  const Tensor x = randn({2, 8});
  const auto message = [&](auto f) {
    Compiled compiled =
        compile([f](std::span<const Tensor> in) { return std::vector<Tensor>{f(in[0])}; });
    const Tensor in[] = {x};
    return error_of([&] { compiled(in); });
  };
  EXPECT_EQ(message([](const Tensor& t) { return add_(t, t); }),
            "[compile] expected ops that write nothing in place, got aten::add_");
  const Tensor weight = ones({2, 8});
  EXPECT_EQ(message([weight](const Tensor& t) { return t * mul_(weight, 2.0); }),
            "[compile] expected ops that write nothing in place, got aten::mul_");
  EXPECT_EQ(message([weight](const Tensor& t) { return t * run_op(kBernoulli_, {weight}, {0.5}); }),
            "[compile] expected ops that write nothing in place, got aten::bernoulli_");
  EXPECT_EQ(weight.to_vector(), std::vector<double>(16, 1.0));
  EXPECT_EQ(message([](const Tensor& t) {
              return t + randn({2, 8});
            }),
            "[compile] expected a function that draws no random numbers, got one that does");
  EXPECT_EQ(message([](const Tensor& t) { return t * sum(t).item(); }),
            "[item] expected a function that reads no elements while it is being compiled");
  EXPECT_HAS(message([](const Tensor& t) { return matmul(t, t); }), "[aten::matmul]");
  EXPECT_EQ(message([](const Tensor& t) { return t * double{t.data_as<float>()[0]}; }),
            "[data_as] expected a function that reads no elements while it is being compiled");
  EXPECT_EQ(message([](const Tensor& t) {
              const Tensor y = t * 2.0;
              return y * double{y.detach().data_as<float>()[0]};
            }),
            "[data_as] expected a function that reads no elements while it is being compiled");
  const nn::ReLU relu;
  const std::string unknown = error_of([&] { compile(relu, {.skip = {"fuse_all"}}); });
  EXPECT_TRUE(unknown.starts_with("[compile] expected a pass to skip (keep_casts, ")) << unknown;
  EXPECT_TRUE(unknown.ends_with("), got 'fuse_all'")) << unknown;
}

// Constants that the function makes itself have elements.
TEST(CompileErrors, AFunctionMayWriteTensorsOfItsOwn) {
  const NoGrad no_grad;
  Compiled compiled = compile([](const Tensor& t) {
    const Tensor factors = empty({2});
    factors.data_as<float>()[0] = 3;
    factors.data_as<float>()[1] = 5;
    return t * factors;
  });
  EXPECT_EQ(compiled(ones({1, 2})).to_vector(), (std::vector<double>{3, 5}));
}

template <class Layer>
constexpr bool compiles_temporary = requires {
  compile(std::declval<Layer>());
};
static_assert(!compiles_temporary<nn::GatedMLP>, "it would be gone at the first call");
static_assert(compiles_temporary<Tensor (*)(const Tensor&)>);

TEST(CompileErrors, FunctionsThatAreNotThere) {
  EXPECT_ERROR(compile(Compiled::Function()), "[compile] expected a function, got an empty one");
  EXPECT_ERROR(compile([](const Tensor& t) { return t; }, {.max_plans = 0}),
               "[compile] expected max_plans of 1 or more, got 0");
  Compiled compiled = compile([](const Tensor& t) { return t * 2.0; });
  const Compiled taken = std::move(compiled);
  const std::string moved = "[compile] expected a compiled function, got one that was moved from";
  EXPECT_ERROR(compiled(ones({1})), moved);  // NOLINT(bugprone-use-after-move)
  EXPECT_ERROR(compiled.explain(), moved);
  EXPECT_ERROR(compiled.stats(), moved);
  EXPECT_ERROR(compiled.reset(), moved);
}

TEST(CompileErrors, AFailedCaptureLeavesNothingBehind) {
  const NoGrad no_grad;
  const RngState before = rng_state();
  const Tensor x = zeros({2, 8});
  Compiled compiled = compile([](std::span<const Tensor> in) {
    return std::vector<Tensor>{in[0] + randn({2, 8})};
  });
  const Tensor in[] = {x};
  EXPECT_THROW(compiled(in), Error);
  EXPECT_EQ(rng_state().offset, before.offset);
  EXPECT_EQ((x + 1.0).to_vector(), std::vector<double>(16, 1.0)) << "kernels run again";
}

}  // namespace epilogue::testing::cache_test
