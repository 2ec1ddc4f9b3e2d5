// SPDX-License-Identifier: Apache-2.0
// Chains of comparisons, selections, bounds and functions with parameters: one kernel, forward and
// backward, with eager's results.
#include "ops/op_testing.h"
#include "plan_testing.h"

namespace epilogue::testing::selections_test {

using PairFunction = Tensor (*)(const Tensor& x, const Tensor& y);

Compiled compile_pair(PairFunction f, CompileOptions options = {}) {
  return compile([f](std::span<const Tensor> in) { return std::vector<Tensor>{f(in[0], in[1])}; },
                 options);
}

// Compiled gives eager's result by `kernels` kernels, whatever the dtype.
void expect_kernels(PairFunction f, int kernels) {
  const NoGrad no_grad;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = to(randn({40, 33}), dtype);
    const Tensor y = to(randn({40, 33}), dtype);
    Compiled compiled = compile_pair(f);
    const Tensor in[] = {x, y};
    const Tensor got = compiled(in)[0];
    expect_close(to(got, DType::f32), to(f(x, y), DType::f32), dtype == DType::f32 ? 1e-5 : 0.05,
                 compiled.dump(CompiledDump::plan));
    EXPECT_EQ(got.dtype(), dtype);
    EXPECT_EQ(compiled.stats().kernels, kernels) << compiled.explain();
  }
}

Tensor selected(const Tensor& x, const Tensor& y) {
  return where(gt(x, y), clamp(leaky_relu(x + y, 0.1), -1, 1.5), hardswish(y));
}

TEST(Selections, AChainIsOneKernel) {
  expect_kernels(selected, 1);
  expect_kernels(
      [](const Tensor& x, const Tensor& y) { return maximum(elu(x), minimum(y, mish(y))); }, 1);
  expect_kernels(
      [](const Tensor& x, const Tensor& y) {
        return where(le(abs(x), 0.5), 0, pow(sin(x), 3) * sqrt(softplus(y)) - cos(y));
      },
      1);
}

// A row's number meets its elements in a step of three operands.
TEST(Selections, NumbersOfRowsAreOperandsToo) {
  expect_kernels(
      [](const Tensor& x, const Tensor& y) {
        const Tensor sums = sum(x, {-1}, true);
        return where(ge(y, 0.5), sums, leaky_relu(x));
      },
      1);
}

TEST(Selections, AComparisonMayLeaveTheProgram) {
  const NoGrad no_grad;
  Compiled compiled = compile([](std::span<const Tensor> in) {
    const Tensor mask = lt(in[0] * 2.0, in[1]);
    return std::vector<Tensor>{mask, where(mask, in[0], 1.0)};
  });
  const Tensor in[] = {randn({17, 21}), randn({17, 21})};
  const std::vector<Tensor> got = compiled(in);
  const Tensor mask = lt(in[0] * 2.0, in[1]);
  EXPECT_EQ(got[0].dtype(), DType::boolean);
  EXPECT_EQ(got[0].to_vector(), mask.to_vector());
  EXPECT_EQ(got[1].to_vector(), where(mask, in[0], 1.0).to_vector());
}

// Behind a product: in the chain, the comparison beside it.
TEST(Selections, FollowAProduct) {
  const NoGrad no_grad;
  const Tensor w = randn({24, 12});
  const auto f = [w](std::span<const Tensor> in) {
    const Tensor h = linear(in[0], w);
    const Tensor mask = gt(h, 0.25);
    return std::vector<Tensor>{where(mask, leaky_relu(h, 0.3), elu(h)), mask};
  };
  Compiled compiled = compile(f, {.packed = Packed::always});
  const Tensor in[] = {randn({9, 12})};
  const std::vector<Tensor> got = compiled(in);
  const std::vector<Tensor> want = f(in);
  expect_close(got[0], want[0], 1e-5, compiled.dump(CompiledDump::plan));
  EXPECT_EQ(got[1].to_vector(), want[1].to_vector());
  EXPECT_EQ(compiled.stats().kernels, 1) << compiled.explain();
}

TEST(Selections, GradientsAreEagersAndFused) {
  Tensor x = randn({30, 20});
  Tensor y = randn({30, 20});
  x.set_requires_grad(true);
  y.set_requires_grad(true);
  const auto gradients = [&](const Tensor& loss) {
    loss.backward();
    const std::vector<Tensor> list = {x.grad(), y.grad()};
    x.set_grad({});
    y.set_grad({});
    return list;
  };
  const std::vector<Tensor> want = gradients(sum(selected(x, y) * 3.0));
  Compiled compiled = compile_pair(selected);
  const Tensor in[] = {x, y};
  const std::vector<Tensor> got = gradients(sum(compiled(in)[0] * 3.0));
  for (size_t i = 0; i < 2; ++i)
    expect_close(got[i], want[i], 1e-6, compiled.dump(CompiledDump::plan));
  // The sum and its mask are read by the gradients of both inputs.
  EXPECT_EQ(compiled.stats().kernels, 4) << compiled.explain();
  EXPECT_GE(compiled.stats().eager_kernels, 12);
}

TEST(Selections, AChainAndItsBackwardPassAreAKernelEach) {
  const auto f = [](const Tensor& x, const Tensor& y) {
    return where(gt(y, 0), clamp(leaky_relu(x, 0.2), -0.1, 1), 0);
  };
  Tensor x = randn({30, 20});
  const Tensor y = randn({30, 20});
  x.set_requires_grad(true);
  sum(f(x, y) * y).backward();
  const Tensor want = x.grad();
  x.set_grad({});
  Compiled compiled = compile_pair(f);
  const Tensor in[] = {x, y};
  const Tensor got = compiled(in)[0];
  expect_close(got.detach(), f(x, y).detach(), 1e-6, "result");
  sum(got * y).backward();
  expect_close(x.grad(), want, 1e-6, compiled.dump(CompiledDump::plan));
  EXPECT_EQ(compiled.stats().kernels, 2) << compiled.explain();
}

// One number of each step: two different ones stay the op.
TEST(Selections, TwoConstantsOfOneStepRunAsTheOp) {
  const NoGrad no_grad;
  Compiled compiled = compile([](std::span<const Tensor> in) {
    return std::vector<Tensor>{exp(where(gt(in[0], 0), full({}, 1.0), full({}, 2.0)) * in[0])};
  });
  const Tensor in[] = {randn({6, 5})};
  const Tensor got = compiled(in)[0];
  const Tensor want = exp(where(gt(in[0], 0), full({}, 1.0), full({}, 2.0)) * in[0]);
  expect_close(got, want, 1e-6, compiled.dump(CompiledDump::plan));
}

}  // namespace epilogue::testing::selections_test
