// SPDX-License-Identifier: Apache-2.0
// Functions of all kinds: what cannot be fused runs as the op itself.
#include "epilogue/profiler.h"
#include "epilogue/trace/event.h"
#include "ops/op_testing.h"
#include "plan_testing.h"
#include "support/test.h"

namespace epilogue::testing::functions_test {

using Function = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

// Compiled twice in a row, the second time from the cache, gives eager's results.
Compiled expect_same(const Function& f, std::vector<Tensor> in, double tolerance = 1e-5) {
  const NoGrad no_grad;
  Compiled compiled = compile(f);
  const std::vector<Tensor> want = f(in);
  for (int call = 0; call < 2; ++call) {
    const std::vector<Tensor> got = compiled(in);
    EXPECT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i)
      expect_close(got[i], want[i], tolerance, compiled.dump(CompiledDump::plan));
  }
  EXPECT_EQ(compiled.stats().misses, 1);
  return compiled;
}

TEST(CompiledFunctions, PointwiseChainsAreOneKernel) {
  const Tensor bias = randn({12});
  const auto f = [bias](std::span<const Tensor> in) {
    const Tensor t = gelu(in[0] + bias, Gelu::tanh) * in[1] - 0.5;
    return std::vector<Tensor>{div(sigmoid(t), exp(neg(tanh(silu(relu(t))))))};
  };
  for (const Dims& sizes : {Dims{1, 12}, Dims{5, 12}, Dims{3, 400, 12}}) {
    const Compiled c = expect_same(f, {randn(sizes), randn(sizes)});
    // t is read twice: it is stored once, and the rest is one more program.
    EXPECT_LE(c.stats().kernels, 5) << c.explain();
    EXPECT_GE(c.stats().eager_kernels, 10);
  }
}

TEST(CompiledFunctions, AChainWithoutForksIsExactlyOneKernel) {
  const Compiled c = expect_same(
      [](std::span<const Tensor> in) {
        return std::vector<Tensor>{neg(gelu(in[0]) * in[1]) + in[0]};
      },
      {randn({40, 33}), randn({40, 33})});
  EXPECT_EQ(c.stats().kernels, 1) << c.explain();
}

TEST(CompiledFunctions, OpsThatNothingFusesRunAsTheyAre) {
  const Tensor w = randn({12, 7});
  const Compiled c = expect_same(
      [w](std::span<const Tensor> in) {
        const Tensor y = matmul(in[0], w);
        return std::vector<Tensor>{softmax(y, -1), sum(y, {0}), transpose(y, 0, 1)};
      },
      {randn({9, 12})});
  EXPECT_EQ(c.stats().kernels, 2) << "the product with its column sums; softmax\n" << c.explain();
}

TEST(CompiledFunctions, ComputedMatricesAreMultipliedByTheOp) {
  const Compiled c = expect_same(
      [](std::span<const Tensor> in) { return std::vector<Tensor>{matmul(in[0], in[1])}; },
      {randn({5, 6}), randn({6, 4})});
  EXPECT_HAS(c.explain(), "the second matrix is computed, not a parameter");
}

TEST(CompiledFunctions, ResultsMayBeInputsParametersViewsAndTheSameTwice) {
  const Tensor p = randn({3});
  const NoGrad no_grad;
  const Tensor x = randn({2, 3});
  const Compiled c = expect_same(
      [p](std::span<const Tensor> in) {
        const Tensor y = relu(in[0]);
        return std::vector<Tensor>{in[0], p, y, y, view(y, {3, 2}), transpose(in[0], 0, 1)};
      },
      {x});
  // A result that is a view must not lie in memory that the next call writes.
  Compiled again = c;
  const Tensor one[] = {x};
  const Tensor two[] = {randn({2, 3})};
  const std::vector<Tensor> first = again(one);
  const std::vector<double> kept = first[4].to_vector();
  again(two);
  EXPECT_EQ(first[4].to_vector(), kept);
}

TEST(CompiledFunctions, TheSameTensorGivenTwiceIsNotTwoTensors) {
  const NoGrad no_grad;
  Compiled compiled =
      compile([](std::span<const Tensor> in) { return std::vector<Tensor>{neg(in[0] - in[1])}; });
  const Tensor a = ones({2, 2});
  const Tensor b = zeros({2, 2});
  const Tensor same[] = {a, a};
  const Tensor different[] = {a, b};
  EXPECT_EQ(compiled(same)[0].to_vector()[0], 0);
  EXPECT_EQ(compiled(different)[0].to_vector()[0], -1);
}

TEST(CompiledFunctions, BiasMatrixResidualAndScaledAddmm) {
  const Tensor w = randn({6, 5});
  const Tensor b = randn({5});
  const Tensor c = randn({4, 5});
  expect_same(
      [=](std::span<const Tensor> in) {
        return std::vector<Tensor>{addmm(b, in[0], w, 0.5, 2), addmm(c, in[0], w, 0, 1),
                                   addmm(c, in[0], w), matmul(in[0], w) + c};
      },
      {randn({4, 6})});
}

TEST(CompiledFunctions, NormsWithAndWithoutWhatChainsNeed) {
  const Tensor w = randn({6, 5});
  const Tensor g = randn({6});
  const auto f = [=](std::span<const Tensor> in) {
    const Tensor n = rms_norm(in[0], {6}, g, 1e-3);
    return std::vector<Tensor>{matmul(n, w), matmul(layer_norm(in[0], {6}, g, g), w), n};
  };
  const Compiled c = expect_same(f, {randn({4, 6})}, 1e-5);
  EXPECT_HAS(c.explain(), "others read its result too");
}

TEST(CompiledFunctions, NanAndInfinityComeThrough) {
  const NoGrad no_grad;
  nn::GatedMLP mlp(16, 24, nn::Activation::reglu);
  Compiled compiled = compile(mlp);
  Tensor x = randn({3, 16});
  x.data_as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<double> nan_row = compiled(x).to_vector();
  const std::vector<double> eager = mlp(x).to_vector();
  for (size_t i = 0; i < nan_row.size(); ++i)
    EXPECT_EQ(std::isnan(nan_row[i]), std::isnan(eager[i])) << i;
  EXPECT_TRUE(std::isnan(nan_row[0]));
  EXPECT_FALSE(std::isnan(nan_row[16]));
}

TEST(CompiledFunctions, CollapsedLinearsFollowTheirWeights) {
  const NoGrad no_grad;
  const Tensor w1 = randn({64, 8});
  const Tensor w2 = randn({8, 64});
  const Function f = [=](std::span<const Tensor> in) {
    return std::vector<Tensor>{linear(linear(in[0], w1), w2)};
  };
  const Tensor in[] = {randn({4, 8})};
  Compiled compiled = compile(f, {.collapse_linears = true});
  expect_close(compiled(in)[0], f(in)[0], 1e-3, "collapsed");
  EXPECT_HAS(compiled.dump(CompiledDump::plan), "f32[8, 8]");
  copy_(w1, randn({64, 8}));
  expect_close(compiled(in)[0], f(in)[0], 1e-3, "written weight");
  EXPECT_EQ(compiled.stats().misses, 2);
}

TEST(CompiledFunctions, TheTraceShowsOneKernelNamedByTheOpsItStandsFor) {
  const NoGrad no_grad;
  nn::GatedMLP mlp(32, 64);
  Compiled compiled = compile(mlp);
  const Tensor x = randn({8, 32});
  compiled(x);
  profiler::Profile profile;
  profile.start();
  compiled(x);
  profile.stop();
  std::vector<std::string> kernels;
  std::vector<std::string> ops;
  for (const trace::Event& e : profile.trace().events) {
    const std::string name(profile.trace().strings[e.name]);
    if (e.category == trace::Category::kernel) kernels.push_back(name);
    if (e.category == trace::Category::cpu_op) ops.push_back(name);
  }
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_HAS(kernels[0], "_row_chain_mm_gelu_mm_mul_mm_f32");
  EXPECT_EQ(ops, std::vector<std::string>{"epilogue::row_chain"});
  // 3 products of 8 x 32 x 64, gelu 9 and mul 1 per hidden element.
  ASSERT_EQ(profile.trace().kernels.size(), 1U);
  EXPECT_EQ(profile.trace().kernels[0].flops, 3 * 2 * 8 * 32 * 64 + 10 * 8 * 64);
  // x, three weights, the result; nothing in between.
  EXPECT_EQ(profile.trace().kernels[0].bytes, 4 * (2 * 8 * 32 + 3 * 32 * 64));
}

// FLOPs and bytes that the trace gives for the one kernel of a call.
std::pair<int64_t, int64_t> traced_work(Compiled& compiled, const Tensor& x) {
  profiler::Profile profile;
  profile.start();
  compiled(x);
  profile.stop();
  EXPECT_EQ(profile.trace().kernels.size(), 1U);
  return {profile.trace().kernels[0].flops, profile.trace().kernels[0].bytes};
}

TEST(CompiledFunctions, TracedWorkFollowsTheRowsOfTheCall) {
  const NoGrad no_grad;
  nn::Linear layer(32, 16, false);
  Compiled free_rows = compile(layer);
  Compiled fixed_rows = compile(layer, {.dynamic_rows = false});
  for (const int64_t rows : {8, 2}) {
    const std::pair<int64_t, int64_t> want{2 * rows * 32 * 16,
                                           4 * (rows * 32 + 32 * 16 + rows * 16)};
    EXPECT_EQ(traced_work(free_rows, randn({rows, 32})), want);
    EXPECT_EQ(traced_work(fixed_rows, randn({rows, 32})), want);
  }
}

}  // namespace epilogue::testing::functions_test
