// SPDX-License-Identifier: Apache-2.0
// Compiled functions that reduce rows and columns give what eager gives.
#include "base/cpu_features.h"
#include "epilogue/runtime.h"
#include "ops/op_testing.h"
#include "ops/table_support.h"
#include "plan_testing.h"
#include "support/test.h"

namespace epilogue::testing::reductions_test {

using Function = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

std::vector<Tensor> in_f64(const std::vector<Tensor>& list) {
  std::vector<Tensor> wide;
  for (const Tensor& t : list) wide.push_back(to(t, DType::f64));
  return wide;
}

// Against f64: within eager's error, or that of a few f32 roundings. `kernels`: how many it takes.
void expect_reductions(const Function& f, const std::vector<Tensor>& in, int64_t kernels,
                       const std::string& what) {
  const NoGrad no_grad;
  Compiled compiled = compile(f);
  const std::vector<Tensor> got = compiled(in);
  const std::vector<Tensor> eager = f(in);
  const std::vector<Tensor> exact = f(in_f64(in));
  for (size_t i = 0; i < got.size(); ++i) {
    expect_same_kind(got[i], eager[i], what);
    const std::vector<double> want = exact[i].to_vector();
    const double theirs = relative_l2(eager[i], want);
    EXPECT_LE(relative_l2(got[i], want), std::max(1.05 * theirs, 4e-7))
        << what << ", result " << i << ", eager's error " << theirs;
  }
  EXPECT_EQ(compiled.stats().kernels, kernels) << what << "\n" << compiled.explain();
}

struct Named {
  const char* name;
  Function f;
};

// Of x and y, both [..., n].
std::vector<Named> functions() {
  return {
      {"softmax",
       [](std::span<const Tensor> in) { return std::vector<Tensor>{softmax(in[0] * in[1], -1)}; }},
      {"log_softmax",
       [](std::span<const Tensor> in) {
         return std::vector<Tensor>{log_softmax(in[0] - in[1], -1) * 0.5};
       }},
      {"rms_norm",
       [](std::span<const Tensor> in) {
         const int64_t n = in[0].size(-1);
         return std::vector<Tensor>{rms_norm(in[0] + in[1], {n}, Tensor(), 1e-5)};
       }},
      {"layer_norm",
       [](std::span<const Tensor> in) {
         const int64_t n = in[0].size(-1);
         return std::vector<Tensor>{gelu(layer_norm(in[0] + in[1], {n}, Tensor(), Tensor(), 1e-5))};
       }},
      {"sum and mean",
       [](std::span<const Tensor> in) {
         const Tensor e = exp(in[0]);
         return std::vector<Tensor>{div(e, sum(e, {-1}, true)) + mean(in[0], {-1}, true)};
       }},
      {"dot",
       [](std::span<const Tensor> in) { return std::vector<Tensor>{sum(in[0] * in[1], {-1})}; }}};
}

TEST(CompiledReductions, AreOneKernelAtOddSizesOfEveryTypeAndLevel) {
  const test::IsaScope scope;
  for (const Isa level : available_isas()) {
    set_active_isa(level);
    for (const Named& named : functions())
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
        for (const Dims& sizes : {Dims{1, 17}, Dims{37, 33}, Dims{2, 5, 301}}) {
          manual_seed(5);
          expect_reductions(
              named.f, {randn(sizes, dtype), randn(sizes, dtype)}, 1,
              std::string(named.name) + " " + std::string(dtype_name(dtype)) + to_string(sizes));
        }
  }
}

TEST(CompiledReductions, AnyNumberOfRowsNeedsOnePlan) {
  const NoGrad no_grad;
  const Function f = functions()[0].f;
  Compiled compiled = compile(f);
  for (const int64_t rows : {5, 1, 64}) {
    const std::vector<Tensor> in = {randn({rows, 9}), randn({rows, 9})};
    expect_close(compiled(in)[0], f(in)[0], 1e-6, std::to_string(rows));
  }
  EXPECT_EQ(compiled.stats().misses, 1);
}

TEST(CompiledReductions, SumsOverRowsHaveAPlanForEachNumberOfThem) {
  const NoGrad no_grad;
  const Function f = [](std::span<const Tensor> in) {
    const Tensor d = in[0] * in[1];
    return std::vector<Tensor>{d, sum(d, {0}, true), sum(d, {0})};
  };
  Compiled compiled = compile(f);
  for (const int64_t rows : {1, 5, 100}) {
    const std::vector<Tensor> in = {randn({rows, 9}), randn({rows, 9})};
    const std::vector<Tensor> got = compiled(in);
    const std::vector<Tensor> want = f(in);
    for (size_t i = 0; i < want.size(); ++i) expect_close(got[i], want[i], 1e-5, "");
  }
}

TEST(CompiledReductions, ASquareMatrixIsNotTakenForItsTranspose) {
  const NoGrad no_grad;
  const Function f = [](std::span<const Tensor> in) {
    const Tensor e = exp(in[0]);
    return std::vector<Tensor>{e * sum(e, {-1}), e * sum(e, {-1}, true), e * sum(e, {0})};
  };
  const std::vector<Tensor> in = {randn({6, 6})};
  Compiled compiled = compile(f);
  const std::vector<Tensor> got = compiled(in);
  const std::vector<Tensor> want = f(in);
  for (size_t i = 0; i < 3; ++i) expect_close(got[i], want[i], 1e-5, std::to_string(i));
}

// b [n] is one number per column, the sums [n] one per row: the one must not be written over the
// other while rows are left.
TEST(CompiledReductions, ReducedResultsDoNotLieWhereAnInputDies) {
  const NoGrad no_grad;
  const Function f = [](std::span<const Tensor> in) {
    const Tensor b = sum(in[1], {0});
    return std::vector<Tensor>{softmax(sum(in[0] * b, {-1}), 0)};
  };
  const std::vector<Tensor> in = {rand({70, 70}), rand({70, 70}) * 0.01};
  Compiled compiled = compile(f);
  expect_close(compiled(in)[0], f(in)[0], 1e-6, compiled.dump(CompiledDump::plan));
  EXPECT_EQ(compiled.stats().kernels, 3);
}

TEST(CompiledReductions, NanAndInfinityAreEagers) {
  const NoGrad no_grad;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const Named& named : functions()) {
    const Tensor x = randn({6, 19});
    auto* const values = x.data_as<float>();
    values[2] = std::numeric_limits<float>::quiet_NaN();
    values[19 + 3] = kInf;
    values[2 * 19 + 4] = -kInf;
    const std::vector<Tensor> in = {x, ones({6, 19})};
    Compiled compiled = compile(named.f);
    expect_close(compiled(in)[0], named.f(in)[0], 1e-6, named.name);
  }
}

// Eager's dropout, with the mask that it would draw as an input of bytes.
TEST(CompiledPrograms, ADropoutMaskIsLoadedAndScaled) {
  const NoGrad no_grad;
  constexpr double kDropped = 0.25;
  const Tensor x = randn({37, 65});
  manual_seed(3);
  const Tensor want = dropout(gelu(x, Gelu::tanh), kDropped, true);
  manual_seed(3);
  const Tensor mask = empty({37, 65});
  run_op(kBernoulli_, {mask}, {1 - kDropped});
  Compiled compiled = compile([](std::span<const Tensor> in) {
    return std::vector<Tensor>{gelu(in[0], Gelu::tanh) * in[1] * (1 / (1 - kDropped))};
  });
  for (const DType dtype : {DType::boolean, DType::u8, DType::f32}) {
    const std::vector<Tensor> in = {x, to(mask, dtype)};
    expect_close(compiled(in)[0], want, 1e-6, std::string(dtype_name(dtype)));
    EXPECT_EQ(compiled.stats().kernels, 1) << compiled.explain();
  }
}

// As an operand of a product's program too, and every second column of a wider mask.
TEST(CompiledPrograms, AMaskJoinsAProduct) {
  const NoGrad no_grad;
  const Tensor w = randn({65, 20});
  const Tensor x = randn({37, 20});
  const Tensor mask =
      slice(to(to(uniform({37, 130}, 0, 2), DType::u8), DType::boolean), 1, 0, 130, 2);
  const Function f = [w](std::span<const Tensor> in) {
    return std::vector<Tensor>{linear(in[0], w) * in[1]};
  };
  Compiled compiled = compile(f);
  const std::vector<Tensor> in = {x, mask};
  expect_close(compiled(in)[0], f(in)[0], 1e-5, "masked product");
  EXPECT_EQ(compiled.stats().kernels, 1) << compiled.explain();
}

TEST(CompiledReductions, NoRowsAndNoColumns) {
  const NoGrad no_grad;
  for (const Dims& sizes : {Dims{0, 4}, Dims{4, 0}}) {
    const std::vector<Tensor> in = {zeros(sizes), zeros(sizes)};
    for (const Named& named : functions()) {
      Compiled compiled = compile(named.f);
      expect_close(compiled(in)[0], named.f(in)[0], 0, named.name + to_string(sizes));
    }
  }
}

}  // namespace epilogue::testing::reductions_test
