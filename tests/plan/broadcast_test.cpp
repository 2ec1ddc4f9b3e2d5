// SPDX-License-Identifier: Apache-2.0
// Operands that broadcast in any dimension join programs.
#include "ops/op_testing.h"
#include "plan_testing.h"
#include "support/test.h"

namespace epilogue::testing::broadcast_test {

class Broadcast : public ::testing::TestWithParam<DType> {
 protected:
  NoGrad no_grad_;
};

// Attention scores [b, h, t, u] with masks of every shape that people give them.
TEST_P(Broadcast, MaskedScoresAreOneKernel) {
  const DType dtype = GetParam();
  const double tolerance = dtype == DType::f32 ? 1e-6 : 1e-2;
  const auto attention = [](const Tensor& s, const Tensor& mask) {
    return softmax(s * 0.5 + mask, -1);
  };
  for (const Dims& sizes : {Dims{2, 3, 5, 7}, Dims{1, 4, 33, 40}, Dims{3, 1, 9, 1}}) {
    const int64_t b = sizes[0];
    const int64_t h = sizes[1];
    const int64_t t = sizes[2];
    const int64_t u = sizes[3];
    const Tensor s = to(randn(sizes), dtype);
    for (const Dims& mask_sizes :
         {Dims{t, u}, Dims{u}, Dims{b, 1, 1, u}, Dims{b, 1, t, u}, Dims{h, t, u}, Dims{h, 1, u},
          Dims{1, h, 1, 1}, Dims{b, h, t, 1}, Dims{b, h, 1, 1}, Dims{t, 1}, Dims{b, h, t, u}}) {
      const Tensor mask = to(randn(mask_sizes), dtype);
      const Compiled compiled = compile(attention);
      const std::string what = to_string(s) + " with a mask " + to_string(mask_sizes);
      expect_close(compiled(s, mask), attention(s, mask), tolerance, what);
      EXPECT_EQ(compiled.stats().kernels, 1) << what << "\n" << compiled.explain();
    }
    // A mask that the function holds.
    const Tensor held = to(randn({t, u}), dtype);
    const Compiled compiled = compile([&](const Tensor& x) { return softmax(x * 0.5 + held, -1); });
    expect_close(compiled(s), attention(s, held), tolerance, "a mask that is held");
    EXPECT_EQ(compiled.stats().kernels, 1) << compiled.explain();
  }
}

TEST_P(Broadcast, TransposedOperandsLieInRowsThatAreApart) {
  const DType dtype = GetParam();
  const auto sum = [](const Tensor& a, const Tensor& b) { return relu(a) + sigmoid(b); };
  const Tensor a = to(randn({6, 5, 8}), dtype);
  const Tensor b = transpose(to(randn({5, 6, 8}), dtype), 0, 1);
  const Compiled compiled = compile(sum);
  expect_close(compiled(a, b), sum(a, b), dtype == DType::f32 ? 1e-6 : 1e-2, "transposed");
  EXPECT_EQ(compiled.stats().kernels, 1) << compiled.explain();
}

// A product's program reads an operand that repeats for each group of rows.
TEST_P(Broadcast, AProductReadsAnOperandOfFewerRows) {
  const DType dtype = GetParam();
  nn::Linear l(16, 24);
  l.to(dtype);
  const auto f = [&](const Tensor& x, const Tensor& positions) { return gelu(l(x)) + positions; };
  const Tensor x = to(randn({3, 50, 16}), dtype);
  const Tensor positions = to(randn({50, 24}), dtype);
  const Compiled compiled = compile(f);
  expect_close(compiled(x, positions), f(x, positions), dtype == DType::f32 ? 1e-5 : 4e-2,
               "positions");
}

// What cannot be one kernel says why.
TEST(Broadcasts, MoreLevelsThanThereAreSayWhy) {
  const NoGrad no_grad;
  const auto f = [](const Tensor& a, const Tensor& b) { return relu(a) + b; };
  const Tensor a = randn({2, 3, 2, 3, 2, 4});
  const Tensor b = randn({2, 1, 2, 1, 2, 4});
  const Compiled compiled = compile(f);
  expect_close(compiled(a, b), f(a, b), 0, "six dimensions");
  EXPECT_HAS(compiled.explain(), "an operand does not lie in rows");
}

INSTANTIATE_TEST_SUITE_P(DTypes, Broadcast, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& i) { return std::string(dtype_name(i.param)); });

}  // namespace epilogue::testing::broadcast_test
