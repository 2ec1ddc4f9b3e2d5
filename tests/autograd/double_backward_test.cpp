// SPDX-License-Identifier: Apache-2.0
// Second and third derivatives, by hand and against finite differences of the first.
#include "autograd/leaf.h"
#include "errors/message_of.h"
#include "support/test.h"

namespace epilogue::double_backward_test {

using test::leaf;
using test::random_leaf;

constexpr BackwardOptions kCreateGraph{.retain_graph = true, .create_graph = true};

TEST(DoubleBackward, PowersByHand) {
  const Tensor x = leaf({3}, {}, DType::f64);
  const Tensor y = x * x * x;
  const Tensor d1 = grad({&y, 1}, {&x, 1}, {}, kCreateGraph)[0];
  const Tensor d2 = grad({&d1, 1}, {&x, 1}, {}, kCreateGraph)[0];
  const Tensor d3 = grad({&d2, 1}, {&x, 1})[0];
  EXPECT_DOUBLE_EQ(d1.item(), 27);
  EXPECT_DOUBLE_EQ(d2.item(), 18);
  EXPECT_DOUBLE_EQ(d3.item(), 6);
  EXPECT_FALSE(d3.requires_grad());
}

// exp keeps its own result: on the second walk it must lead back to exp.
TEST(DoubleBackward, OpsThatKeepTheirResult) {
  const Tensor x = leaf({0.5}, {}, DType::f64);
  const Tensor y = exp(x * 2.0);
  Tensor d = y;
  for (int order = 1; order <= 4; ++order) {
    d = grad({&d, 1}, {&x, 1}, {}, kCreateGraph)[0];
    EXPECT_NEAR(d.item(), std::pow(2, order) * std::exp(1.0), 1e-9) << order;
  }
}

TEST(DoubleBackward, MixedDerivatives) {
  const Tensor x = leaf({2}, {}, DType::f64);
  const Tensor y = leaf({5}, {}, DType::f64);
  const Tensor z = x * x * y;
  const Tensor dx = grad({&z, 1}, {&x, 1}, {}, kCreateGraph)[0];
  EXPECT_DOUBLE_EQ(grad({&dx, 1}, {&y, 1})[0].item(), 4);
}

// The gradient of f as a function, itself through gradcheck.
void expect_second_derivatives(const char* name,
                               const std::function<Tensor(std::span<const Tensor>)>& f,
                               std::span<const Tensor> inputs) {
  auto first = [&](std::span<const Tensor> in) {
    const GradMode on(true);  // gradcheck evaluates without recording
    const Tensor y = sum(f(in) * f(in));
    return grad({&y, 1}, in, {}, kCreateGraph);
  };
  const GradcheckResult result = gradcheck(first, inputs);
  EXPECT_TRUE(result.ok) << name << ": " << result.message;
}

TEST(DoubleBackward, ChainsAgainstFiniteDifferences) {
  manual_seed(5);
  const Tensor in[] = {random_leaf({2, 3}), random_leaf({3})};
  using In = std::span<const Tensor>;
  expect_second_derivatives(
      "tanh", [](In x) { return tanh(x[0] * x[1]); }, in);
  expect_second_derivatives(
      "exp", [](In x) { return exp(x[0] * 0.3) + x[1]; }, in);
  expect_second_derivatives(
      "sigmoid", [](In x) { return sigmoid(x[0] - x[1]); }, in);
  expect_second_derivatives(
      "silu", [](In x) { return silu(x[0]) * x[1]; }, in);
  expect_second_derivatives(
      "gelu", [](In x) { return gelu(x[0] * x[1]); }, in);
  expect_second_derivatives(
      "gelu tanh", [](In x) { return gelu(x[0] + x[1], Gelu::tanh); }, in);
  expect_second_derivatives(
      "div", [](In x) { return x[0] / (x[1] * x[1] + 2.0); }, in);
  expect_second_derivatives(
      "softmax", [](In x) { return softmax(x[0] * x[1], 1); }, in);
  expect_second_derivatives(
      "log_softmax", [](In x) { return log_softmax(x[0] * x[1], -1); }, in);
  expect_second_derivatives(
      "mean", [](In x) { return mean(x[0] * x[1], {1}); }, in);
}

TEST(DoubleBackward, LinearAndViewsAgainstFiniteDifferences) {
  manual_seed(6);
  const Tensor in[] = {random_leaf({2, 3}), random_leaf({4, 3}), random_leaf({4})};
  using In = std::span<const Tensor>;
  expect_second_derivatives(
      "linear", [](In x) { return tanh(linear(x[0], x[1], x[2])); }, in);
  expect_second_derivatives(
      "slice and cat",
      [](In x) {
        return cat({slice(x[0], 1, 0, 2) * slice(slice(x[1], 0, 0, 2), 1, 1, 3), x[0]}, 1);
      },
      {in, 2});
  expect_second_derivatives(
      "expand and transpose",
      [](In x) {
        return matmul(matmul(x[0], t(x[1])), expand(view(x[2], {4, 1}), {4, 5}));
      },
      in);
}

TEST(DoubleBackward, WithoutCreateGraphThereIsNoGraph) {
  const Tensor x = leaf({3}, {}, DType::f64);
  const Tensor y = x * x;
  const Tensor d = grad({&y, 1}, {&x, 1})[0];
  EXPECT_FALSE(d.requires_grad());
}

TEST(DoubleBackward, NormsSayThatTheyHaveNone) {
  const Tensor x = random_leaf({2, 3});
  const Tensor y = sum(layer_norm(x, {3}) * x);
  const Tensor d = grad({&y, 1}, {&x, 1}, {}, kCreateGraph)[0];
  EXPECT_ERROR(
      sum(d).backward(),
      "[backward] the derivative for 'aten::native_layer_norm_backward' is not implemented");
}

TEST(Gradcheck, FindsAWrongGradient) {
  const Tensor x = random_leaf({3});
  const GradcheckResult right =
      gradcheck([](auto in) { return std::vector<Tensor>{in[0] * in[0]}; }, {&x, 1});
  EXPECT_TRUE(right.ok) << right.message;
  const GradcheckResult wrong =
      gradcheck([](auto in) { return std::vector<Tensor>{in[0] * in[0].detach()}; }, {&x, 1});
  EXPECT_FALSE(wrong.ok);
  EXPECT_TRUE(wrong.message.starts_with("input 0 element ")) << wrong.message;
}

TEST(Gradcheck, WantsDoubles) {
  const Tensor x = random_leaf({3}, DType::f32);
  EXPECT_ERROR((void)gradcheck([](auto in) { return std::vector<Tensor>{in[0] * 2.0}; }, {&x, 1}),
               "[gradcheck] expected inputs of f64, got f32[3]");
}

}  // namespace epilogue::double_backward_test
