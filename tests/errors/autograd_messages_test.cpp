// SPDX-License-Identifier: Apache-2.0
// Mistakes with gradients. (Second walks and changed saved tensors: tests/autograd.)
#include "autograd/leaf.h"
#include "errors/mistakes.h"

namespace epilogue::test::autograd_messages_test {

TEST(AutogradMessages, Backward) {
  const std::string no_graph = ", which does not require grad and does not have a grad_fn";
  EXPECT_ERROR(ones({1}).backward(),
               "[backward] expected an output that requires a gradient, got f32[1]" + no_graph);
  EXPECT_ERROR(Tensor().backward(),
               "[backward] expected an output that requires a gradient, got undefined" + no_graph);
  EXPECT_EQ(message_of([] {
              const Tensor x = leaf({1}, {1});
              (x * 2.0).detach().backward();
            }),
            "[backward] expected an output that requires a gradient, got f32[1]" + no_graph);
  EXPECT_EQ(message_of([] {
              const Tensor x = leaf({1, 2}, {2});
              (x * 2.0).backward();
            }),
            "[backward] grad can be implicitly created only for scalar outputs, got f32[2]");
  EXPECT_EQ(message_of([] {
              const Tensor x = leaf({1, 2}, {2});
              (x * 2.0).backward(ones({3}));
            }),
            "[backward] expected a gradient of the output's shape [2], got f32[3]");
  EXPECT_EQ(message_of([] {
              const Tensor x = leaf({1}, {1});
              const Tensor outputs[] = {x * 2.0, x * 3.0};
              const Tensor seeds[] = {ones({1})};
              backward(outputs, seeds);
            }),
            "[backward] expected one gradient per output, got 1 for 2");
  EXPECT_EQ(message_of([] {
              const Tensor x = leaf({1, 2}, {2});
              as_strided(x, {1}, {1}).backward();
            }),
            "[backward] the derivative for 'aten::as_strided' is not implemented");
}

TEST(AutogradMessages, Grad) {
  const Tensor x = leaf({1}, {1});
  const Tensor y = x * 2.0;
  const Tensor plain = ones({1});
  EXPECT_ERROR(grad({&y, 1}, {&plain, 1}),
               "[backward] expected inputs that require a gradient, got f32[1]");
  const Tensor undefined;
  EXPECT_ERROR(grad({&y, 1}, {&undefined, 1}),
               "[backward] expected inputs that require a gradient, got undefined");
}

TEST(AutogradMessages, InPlaceOnTheGraph) {
  const std::string refused =
      " expected tensors outside the autograd graph for an in-place write, got one that requires "
      "a gradient; use no_grad or the op that returns a new tensor";
  const Tensor w = leaf({1, 2}, {2});
  const Tensor y = w * 2.0;
  const Tensor plain = ones({2});
  EXPECT_ERROR(add_(w, plain), "[aten::add_]" + refused);
  EXPECT_ERROR(mul_(y, 2.0), "[aten::mul_]" + refused);
  EXPECT_ERROR(copy_(plain, w), "[aten::copy_]" + refused);
  EXPECT_ERROR(zero_(view(w, {2, 1})), "[aten::zero_]" + refused);
  EXPECT_EQ(w.to_vector(), (Values{1, 2}));
  EXPECT_EQ(w.version(), 0U);
}

TEST(AutogradMessages, RequiresGrad) {
  EXPECT_ERROR(arange(3).set_requires_grad(true),
               "[requires_grad] expected a floating tensor, got i64[3]");
  EXPECT_EQ(message_of([] {
              const Tensor x = leaf({1}, {1});
              (x * 2.0).set_requires_grad(false);
            }),
            "[requires_grad] expected a leaf to switch off, got the result of an op; use detach()");
  EXPECT_ERROR(gradcheck({}, {}), "[gradcheck] expected a function, got an empty one");
}

}  // namespace epilogue::test::autograd_messages_test
