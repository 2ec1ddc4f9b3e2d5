// SPDX-License-Identifier: Apache-2.0
// Compiled functions that draw random numbers: the same masks as eager's, call after call.
#include "epilogue/amp.h"
#include "epilogue/optim.h"
#include "epilogue/runtime.h"
#include "ops/op_testing.h"
#include "ops/ops.h"
#include "ops/run_op.h"
#include "step_testing.h"
#include "support/test.h"

namespace epilogue::testing::dropout_test {

constexpr uint64_t kSeed = 17;
constexpr double kDropped = 0.25;

// linear, gelu, dropout, linear; or a gated MLP with dropout on its result.
std::unique_ptr<nn::Sequential> make_network(bool gated, DType dtype) {
  manual_seed(5);
  auto network = std::make_unique<nn::Sequential>();
  if (gated) {
    network->emplace<nn::GatedMLP>(16, 40, nn::Activation::geglu);
  } else {
    network->emplace<nn::Linear>(16, 40);
    network->emplace<nn::GELU>(Gelu::tanh);
    network->emplace<nn::Dropout>(kDropped);
    network->emplace<nn::Linear>(40, 16);
  }
  if (gated) network->emplace<nn::Dropout>(kDropped);
  network->to(dtype);
  return network;
}

struct Case {
  bool gated;
  DType dtype;
};
std::vector<Case> cases() {
  return {{false, DType::f32}, {false, DType::bf16}, {true, DType::f32}, {true, DType::bf16}};
}
std::string describe(const Case& c) {
  return (c.gated ? "geglu " : "mlp ") + std::string(dtype_name(c.dtype));
}

// What a run's numbers may differ by, relative L2. f32: sums in another order. bf16: eager rounds
// each op's result, 1 / (1 - p) among them.
double tolerance(DType dtype) { return dtype == DType::f32 ? 1e-6 : 1e-2; }

void expect_near(const Tensor& got, const Tensor& want, const std::string& what,
                 double at_most = 0) {
  expect_same_kind(got, want, what);
  EXPECT_LE(relative_l2(got, want.to_vector()), std::max(at_most, tolerance(want.dtype()))) << what;
}

// Results of several calls with the gradients behind each, and the generator's state at the end.
struct Calls {
  std::vector<Tensor> tensors;
  RngState state;
};
constexpr int kCalls = 3;

// `call`: the loss's backward pass has run when it returns.
Calls run_calls(const nn::Module& network, const Tensor& x, const std::function<Tensor()>& call) {
  manual_seed(kSeed);
  Calls run;
  for (int i = 0; i < kCalls; ++i) {
    run.tensors.push_back(call().detach());
    for (const Tensor& p : network.parameters()) {
      run.tensors.push_back(p.grad());
      p.set_grad({});
    }
    run.tensors.push_back(x.grad());
    x.set_grad({});
  }
  run.state = rng_state();
  return run;
}

void expect_same_run(const Calls& got, const Calls& want, const std::string& what,
                     double at_most = 0) {
  ASSERT_EQ(got.tensors.size(), want.tensors.size()) << what;
  for (size_t i = 0; i < want.tensors.size(); ++i)
    expect_near(got.tensors[i], want.tensors[i], what + ", tensor " + std::to_string(i), at_most);
  EXPECT_TRUE(got.state == want.state) << what;
  EXPECT_GT(want.state.offset, 0U) << what;
  const size_t per_call = want.tensors.size() / kCalls;
  EXPECT_NE(want.tensors[0].to_vector(), want.tensors[per_call].to_vector()) << "draws anew";
}

TEST(CompiledDropout, TrainingStepsDrawEagersMasks) {
  for (const Case& c : cases())
    for (const Saved saved : {Saved::automatic, Saved::save, Saved::recompute})
      for (const Packed packed : {Packed::always, Packed::never}) {
        const auto network = make_network(c.gated, c.dtype);
        Tensor x = randn({6, 16}, c.dtype);
        x.set_requires_grad(true);
        const Tensor target = randn({6, 16}, c.dtype);
        const Calls eager = run_calls(*network, x, [&] {
          const Tensor loss = mse((*network)(x), target);
          loss.backward();
          return loss;
        });
        CompiledStep step = compile_step(*network, mse, {.saved = saved, .packed = packed});
        const Calls compiled = run_calls(*network, x, [&] { return step(x, target); });
        expect_same_run(compiled, eager, describe(c) + "\n" + step.dump(CompiledDump::plan));
        EXPECT_EQ(step.stats().misses, 1);
      }
}

TEST(CompiledDropout, RecordedFunctionsDrawEagersMasks) {
  for (const Case& c : cases())
    for (const Saved saved : {Saved::automatic, Saved::save, Saved::recompute}) {
      const auto network = make_network(c.gated, c.dtype);
      Tensor x = randn({6, 16}, c.dtype);
      x.set_requires_grad(true);
      const Tensor target = randn({6, 16}, c.dtype);
      const auto train = [&](auto& f) {
        return run_calls(*network, x, [&] {
          const Tensor y = f(x);
          mse(y, target).backward();
          return y;
        });
      };
      const Calls eager = train(*network);
      Compiled compiled = compile(*network, {.saved = saved});
      expect_same_run(train(compiled), eager,
                      describe(c) + "\n" + compiled.dump(CompiledDump::plan));
    }
}

TEST(CompiledDropout, AutocastStepsDrawEagersMasks) {
  for (const bool gated : {false, true}) {
    const auto network = make_network(gated, DType::f32);
    Tensor x = randn({6, 16});
    x.set_requires_grad(true);
    const Tensor target = randn({6, 16});
    const auto loss = [&](const Tensor& in, const Tensor& wanted) {
      const amp::Autocast autocast({.dtype = DType::bf16});
      return mse((*network)(in), wanted);
    };
    const Calls eager = run_calls(*network, x, [&] {
      const Tensor value = loss(x, target);
      value.backward();
      return value;
    });
    CompiledStep step =
        compile_step([&](std::span<const Tensor> in) { return loss(in[0], in[1]); });
    const Calls compiled = run_calls(*network, x, [&] { return step(x, target); });
    expect_same_run(compiled, eager, step.dump(CompiledDump::plan), tolerance(DType::bf16));
  }
}

// Two results wait for their backward passes: each reads the mask that its own call drew.
TEST(CompiledDropout, EachBackwardPassReadsTheMaskOfItsCall) {
  const auto network = make_network(true, DType::f32);
  Tensor x = randn({6, 16});
  x.set_requires_grad(true);
  const auto gradients = [&](auto& f) {
    manual_seed(kSeed);
    const Tensor first = f(x);
    const Tensor second = f(x);
    std::vector<Tensor> all;
    for (const Tensor& y : {second, first}) {
      sum(y).backward();
      all.push_back(x.grad());
      x.set_grad({});
    }
    return all;
  };
  const std::vector<Tensor> want = gradients(*network);
  Compiled compiled = compile(*network);
  const std::vector<Tensor> got = gradients(compiled);
  for (size_t i = 0; i < want.size(); ++i) expect_near(got[i], want[i], "gradient");
  EXPECT_NE(want[0].to_vector(), want[1].to_vector());
}

TEST(CompiledDropout, TrainFollowsEagersLosses) {
  const Tensor x = randn({8, 16});
  const Tensor target = randn({8, 16});
  const auto losses = [&](bool compiled) {
    const auto network = make_network(false, DType::f32);
    optim::AdamW optimizer(network->parameters(), {.lr = 1e-2});
    CompiledStep step = compile_step(*network, mse);
    manual_seed(kSeed);
    std::vector<double> values;
    for (int i = 0; i < 8; ++i) {
      Tensor loss;
      if (compiled) {
        loss = step.train(x, target, [&] { optimizer.step(); });
      } else {
        loss = mse((*network)(x), target);
        loss.backward();
        optimizer.step();
        optimizer.zero_grad();
      }
      values.push_back(loss.item());
    }
    return values;
  };
  const std::vector<double> eager = losses(false);
  const std::vector<double> compiled = losses(true);
  for (size_t i = 0; i < eager.size(); ++i) EXPECT_NEAR(compiled[i], eager[i], 1e-5 * eager[i]);
}

// Of one input and one result, without gradients.
struct Drawn {
  Tensor result;
  RngState state;
};
template <class F>
Drawn draw(const F& f, const Tensor& x) {
  const NoGrad no_grad;
  manual_seed(kSeed);
  Drawn drawn{f(x), {}};
  drawn.state = rng_state();
  return drawn;
}
Compiled compile_one(const std::function<Tensor(const Tensor&)>& f) {
  return compile([f](std::span<const Tensor> in) { return std::vector<Tensor>{f(in[0])}; });
}

TEST(CompiledDropout, WithoutTrainingNothingIsDrawn) {
  const auto network = make_network(true, DType::f32);
  network->eval();
  Compiled compiled = compile(*network);
  const Tensor x = randn({6, 16});
  const auto got = draw([&](const Tensor& t) { return compiled(t); }, x);
  expect_near(got.result, draw(*network, x).result, "eval");
  EXPECT_EQ(got.state.offset, 0U);
  EXPECT_LACKS(compiled.dump(CompiledDump::plan), "bernoulli");
}

TEST(CompiledDropout, ProbabilitiesOfZeroAndOneDrawNothing) {
  const Tensor x = randn({5, 7});
  for (const double p : {0.0, 1.0}) {
    const auto f = [p](const Tensor& t) { return dropout(neg(t), p, true); };
    Compiled compiled = compile_one(f);
    const auto got = draw([&](const Tensor& t) { return compiled(t); }, x);
    expect_equal(got.result, draw(f, x).result, std::to_string(p));
    EXPECT_EQ(got.state.offset, 0U) << p;
  }
}

TEST(CompiledDropout, TwoDrawsOfOneFunctionDiffer) {
  const auto f = [](const Tensor& t) { return cat({dropout(t, 0.5), dropout(t, 0.5)}, 0); };
  Compiled compiled = compile_one(f);
  const Tensor x = ones({9, 33});
  const auto got = draw([&](const Tensor& t) { return compiled(t); }, x);
  const auto want = draw(f, x);
  expect_equal(got.result, want.result, compiled.dump(CompiledDump::plan));
  EXPECT_TRUE(got.state == want.state);
  const std::vector<double> both = got.result.to_vector();
  const auto middle = both.begin() + static_cast<std::ptrdiff_t>(both.size() / 2);
  EXPECT_FALSE(std::equal(both.begin(), middle, middle));
}

// The generator moves on as eager's does, and the draw behind it gives eager's numbers.
TEST(CompiledDropout, DrawsThatNobodyReadsStay) {
  const auto f = [](const Tensor& t) {
    dropout(t, 0.5);
    return dropout(t, 0.5);
  };
  Compiled compiled = compile_one(f);
  const Tensor x = randn({9, 33});
  const auto got = draw([&](const Tensor& t) { return compiled(t); }, x);
  const auto want = draw(f, x);
  expect_equal(got.result, want.result, compiled.dump(CompiledDump::plan));
  EXPECT_TRUE(got.state == want.state);
}

// Without rows the function draws nothing, which is another plan.
TEST(CompiledDropout, OnePlanDrawsForAnyNumberOfRows) {
  const auto network = make_network(true, DType::f32);
  Compiled compiled = compile(*network);
  for (const int64_t rows : {6, 1, 33, 0, 6}) {
    const Tensor x = randn({rows, 16});
    const auto got = draw([&](const Tensor& t) { return compiled(t); }, x);
    const auto want = draw(*network, x);
    expect_near(got.result, want.result, std::to_string(rows) + " rows");
    EXPECT_TRUE(got.state == want.state) << rows;
  }
  EXPECT_EQ(compiled.stats().misses, 2) << compiled.explain();
}

TEST(CompiledDropout, TheDrawIsAKernelAndAllElseJoinsTheProducts) {
  const auto network = make_network(true, DType::f32);
  Compiled compiled = compile(*network);
  const Tensor x = randn({6, 16});
  draw([&](const Tensor& t) { return compiled(t); }, x);
  EXPECT_EQ(compiled.stats().kernels, 2) << compiled.explain();
  EXPECT_HAS(compiled.explain(), "into what reads it: no, numbers are drawn once");
  EXPECT_HAS(compiled.dump(CompiledDump::plan), "aten::bernoulli_(none; 0.75) -> u8[6, 16]");
}

// The backward pass reads the bytes that were drawn: the scaled mask is nobody's to keep.
TEST(CompiledDropout, TheBackwardPassKeepsTheMaskAsBytes) {
  const auto network = make_network(true, DType::f32);
  CompiledStep step = compile_step(*network, mse, {.packed = Packed::always});
  const Tensor x = randn({6, 16});
  step(x, x);
  const std::string plan = step.dump(CompiledDump::plan);
  EXPECT_EQ(count_of(plan, "aten::bernoulli_"), 1) << plan;
  EXPECT_LACKS(plan, "aten::div");
  EXPECT_EQ(count_of(plan, "u8[6, 16]"), 1) << plan;
}

TEST(CompiledDropout, AMaskThatIsAResultKeepsItsDtype) {
  const auto f = [](std::span<const Tensor> in) {
    const Tensor mask = empty_like(in[0]);
    run_op(kBernoulli_, {mask}, {0.5});
    return std::vector<Tensor>{in[0] * mask, mask};
  };
  const NoGrad no_grad;
  const std::vector<Tensor> in = {randn({5, 12})};
  Compiled compiled = compile(f);
  manual_seed(kSeed);
  const std::vector<Tensor> want = f(in);
  manual_seed(kSeed);
  const std::vector<Tensor> got = compiled(in);
  for (size_t i = 0; i < want.size(); ++i)
    expect_equal(got[i], want[i], compiled.dump(CompiledDump::plan));
  // Theirs, not the plan's: the next call draws elsewhere.
  compiled(in);
  expect_equal(got[1], want[1], "kept");
}

}  // namespace epilogue::testing::dropout_test
