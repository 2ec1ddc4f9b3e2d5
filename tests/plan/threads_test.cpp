// SPDX-License-Identifier: Apache-2.0
// One compiled or fused object under many threads, and what packed weights cost.
#include <barrier>

#include "epilogue/fused.h"
#include "ops/op_testing.h"
#include "plan_testing.h"
#include "support/test.h"

namespace epilogue::testing::threads_test {

constexpr int kThreads = 8;
constexpr int kRounds = 6;

// What each of the threads calls, with rows of its own; between rounds a weight is written.
template <class Call>
void call_from_all_threads(nn::Module& module, const Tensor& weight, const Call& call) {
  std::vector<Tensor> in(kThreads);
  std::vector<Tensor> want(kThreads);
  std::vector<std::string> failures(kThreads);
  for (int t = 0; t < kThreads; ++t) in[static_cast<size_t>(t)] = randn({1 + 5 * t, 32});
  const auto next_round = [&]() noexcept {
    const NoGrad no_grad;
    mul_(weight, scalar(0.5));
    for (size_t t = 0; t < kThreads; ++t) want[t] = module(in[t]);
  };
  next_round();
  std::barrier sync(kThreads, next_round);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      const NoGrad no_grad;
      for (int round = 0; round < kRounds; ++round) {
        for (int i = 0; i < 10; ++i) {
          const std::vector<double> got = call(in[t]).to_vector();
          const std::vector<double> expected = want[t].to_vector();
          for (size_t e = 0; e < got.size(); ++e)
            if (std::abs(got[e] - expected[e]) > 1e-5 + 1e-4 * std::abs(expected[e]))
              failures[t] = "round " + std::to_string(round) + ", element " + std::to_string(e);
        }
        sync.arrive_and_wait();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

class Threads : public ::testing::Test {
 protected:
  NoGrad no_grad_;
  nn::GatedMLP mlp_{32, 80};
};

TEST_F(Threads, ShareOneCompiledObject) {
  const Compiled compiled = compile(mlp_);
  call_from_all_threads(mlp_, mlp_.up_proj.weight, compiled);
  EXPECT_EQ(compiled.stats().calls, kThreads * kRounds * 10);
  EXPECT_EQ(compiled.stats().misses, 1);
}

TEST_F(Threads, ShareOneCompiledObjectWithIntermediateValues) {
  const Compiled compiled = compile(mlp_, {.skip = {"form_row_chains"}});
  call_from_all_threads(mlp_, mlp_.up_proj.weight, compiled);
}

TEST_F(Threads, ShareOneCompiledObjectThatHasAPlanForEach) {
  const Compiled compiled = compile(mlp_, {.dynamic_rows = false, .max_plans = 3});
  call_from_all_threads(mlp_, mlp_.up_proj.weight, compiled);
  EXPECT_GE(compiled.stats().misses, kThreads);
  EXPECT_EQ(compiled.stats().plans, 3);
}

TEST_F(Threads, ShareOneFusedMlp) {
  const FusedMlp fused = FusedMlp::gated(mlp_.gate_proj.weight, mlp_.up_proj.weight,
                                         mlp_.down_proj.weight, mlp_.activation());
  call_from_all_threads(mlp_, mlp_.up_proj.weight, fused);
}

TEST_F(Threads, ShareTheFunctionsOfTensors) {
  call_from_all_threads(mlp_, mlp_.up_proj.weight,
                        [&](const Tensor& x) { return fused_forward(mlp_, x).value(); });
  clear_fused_cache();
}

TEST_F(Threads, ForgetPlansWhileOthersRun) {
  const Compiled compiled = compile(mlp_);
  call_from_all_threads(mlp_, mlp_.up_proj.weight, [&](const Tensor& x) {
    if (x.size(0) == 1) Compiled(compiled).reset();
    return compiled(x);
  });
}

TEST_F(Threads, PackOneCopyOfAWeightForAll) {
  const int64_t before = memory_stats().packed_bytes;
  const Tensor x = randn({3, 32});
  {
    const Compiled first = compile(mlp_);
    first(x);
    const int64_t each = memory_stats().packed_bytes - before;
    EXPECT_GE(each, 3 * 32 * 80 * 4);
    const Compiled second = compile(mlp_, {.dynamic_rows = false});
    expect_close(second(x), first(x), 0, "the same panels");
    const FusedMlp fused = FusedMlp::gated(mlp_.gate_proj.weight, mlp_.up_proj.weight,
                                           mlp_.down_proj.weight, mlp_.activation());
    fused(x);
    std::thread([&] {
      const NoGrad no_grad;
      fused(x);
    }).join();
    EXPECT_EQ(memory_stats().packed_bytes - before, each);
    mul_(mlp_.down_proj.weight, scalar(2.0));
    expect_close(second(x), mlp_(x), 1e-5, "written");
    expect_close(fused(x), mlp_(x), 1e-5, "written");
    EXPECT_EQ(memory_stats().packed_bytes - before, each) << "packed again in place";
  }
  EXPECT_EQ(memory_stats().packed_bytes, before);
}

// As many layers as a large model has: none is packed twice.
TEST_F(Threads, ManyLayersStayPacked) {
  std::vector<std::unique_ptr<nn::GatedMLP>> layers;
  for (int i = 0; i < 80; ++i) layers.push_back(std::make_unique<nn::GatedMLP>(8, 16));
  const Tensor x = randn({1, 8});
  for (const auto& layer : layers) fused_forward(*layer, x);
  const int64_t packed = memory_stats().packed_bytes;
  for (int token = 0; token < 3; ++token)
    for (const auto& layer : layers)
      expect_close(*fused_forward(*layer, x), (*layer)(x), 1e-5, "layer");
  EXPECT_EQ(memory_stats().packed_bytes, packed);
  clear_fused_cache();
  EXPECT_LT(memory_stats().packed_bytes, packed);
}

}  // namespace epilogue::testing::threads_test
