// SPDX-License-Identifier: Apache-2.0
// Values of gradients, modes, retained graphs, and what backward refuses.
#include "autograd/leaf.h"
#include "errors/message_of.h"
#include "support/test.h"

namespace epilogue::backward_test {

using test::leaf;
using test::message_of;
using test::Values;

TEST(Backward, ProductAndSum) {
  const Tensor x = leaf({1, 2, 3}, {3});
  const Tensor y = leaf({4, 5, 6}, {3});
  sum(x * y + x).backward();
  EXPECT_EQ(x.grad().to_vector(), (Values{5, 6, 7}));
  EXPECT_EQ(y.grad().to_vector(), (Values{1, 2, 3}));
  EXPECT_EQ(x.grad().dtype(), DType::f32);
  EXPECT_FALSE(x.grad().requires_grad());
}

TEST(Backward, LinearByHand) {
  const Tensor x = leaf({1, 2, 3, 4}, {2, 2});
  const Tensor w = leaf({1, 0, 0, 1, 1, 1}, {3, 2});
  const Tensor b = leaf({0, 0, 0}, {3});
  const Tensor upstream = from_values({1, 2, 3, 4, 5, 6}, {2, 3});
  linear(x, w, b).backward(upstream);
  EXPECT_EQ(x.grad().to_vector(), (Values{4, 5, 10, 11}));            // g W
  EXPECT_EQ(w.grad().to_vector(), (Values{13, 18, 17, 24, 21, 30}));  // g^T x
  EXPECT_EQ(b.grad().to_vector(), (Values{5, 7, 9}));                 // column sums of g
}

TEST(Backward, TheSameTensorTwice) {
  const Tensor x = leaf({3, -2}, {2});
  sum(x * x).backward();
  EXPECT_EQ(x.grad().to_vector(), (Values{6, -4}));
  const Tensor y = leaf({3, -2}, {2});
  sum(y + y).backward();
  EXPECT_EQ(y.grad().to_vector(), (Values{2, 2}));
  const Tensor z = leaf({3, -2}, {2});
  sum(z - z).backward();
  EXPECT_EQ(z.grad().to_vector(), (Values{0, 0}));
}

// x -> a -> (b, c) -> b * c: a's gradient must be complete before it moves on.
TEST(Backward, Diamond) {
  const Tensor x = leaf({2}, {1});
  const Tensor a = x * 3.0;
  const Tensor b = a + 1.0;
  const Tensor c = a * a;
  sum(b * c).backward();  // d/da (a^3 + a^2) = 3 a^2 + 2 a = 120 at a = 6, times 3
  EXPECT_EQ(x.grad().to_vector(), Values{360});
}

TEST(Backward, BroadcastGradientsAreSummedToSize) {
  const Tensor m = leaf({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor row = leaf({1, 1, 1}, {3});
  const Tensor column = leaf({1, 1}, {2, 1});
  const Tensor zero_dim = leaf({1}, {});
  sum(m * row * column * zero_dim).backward();
  EXPECT_EQ(row.grad().to_vector(), (Values{5, 7, 9}));
  EXPECT_EQ(column.grad().to_vector(), (Values{6, 15}));
  EXPECT_EQ(column.grad().sizes(), (Dims{2, 1}));
  EXPECT_EQ(zero_dim.grad().to_vector(), Values{21});
  EXPECT_EQ(zero_dim.grad().sizes(), Dims{});
}

TEST(Backward, GradientsHaveTheDTypeOfTheirTensor) {
  const Tensor x = leaf({1, 2}, {1, 2}, DType::bf16);
  const Tensor w = leaf({3, 4}, {1, 2}, DType::f32);
  const Tensor d = leaf({5, 6}, {1, 2}, DType::f64);
  sum(x * w * d).backward();
  EXPECT_EQ(to_string(x.grad()), "bf16[1, 2]");
  EXPECT_EQ(to_string(w.grad()), "f32[1, 2]");
  EXPECT_EQ(to_string(d.grad()), "f64[1, 2]");
  EXPECT_EQ(x.grad().to_vector(), (Values{15, 24}));
}

TEST(Backward, CastsPassGradientsThrough) {
  const Tensor x = leaf({1.5, 2.5}, {2}, DType::f32);
  sum(to(x, DType::bf16) * 3.0, {}, false, DType::f64).backward();
  EXPECT_EQ(to_string(x.grad()), "f32[2]");
  EXPECT_EQ(x.grad().to_vector(), (Values{3, 3}));
  const Tensor same = to(x, DType::f32);
  EXPECT_TRUE(same.is_same(x));
}

TEST(Backward, IntegersEndTheGraph) {
  const Tensor x = leaf({1.5, 2.5}, {2});
  EXPECT_FALSE(to(x, DType::i64).requires_grad());
  const Tensor counts = from_values({2, 3}, {2}, DType::i64);
  sum(x * counts).backward();
  EXPECT_EQ(x.grad().to_vector(), (Values{2, 3}));
}

TEST(Backward, SeedsWeightTheOutputs) {
  const Tensor x = leaf({1, 2}, {2});
  const Tensor outputs[] = {x * 2.0, exp(x * 0.0), x * 5.0};
  const Tensor seeds[] = {ones({2}), from_values({7, 7}, {2}), from_values({0, 1}, {2})};
  backward(outputs, seeds);
  EXPECT_EQ(x.grad().to_vector(), (Values{2, 7}));
}

TEST(Backward, ASeedOfAnotherDTypeIsCast) {
  const Tensor x = leaf({1, 2}, {2}, DType::bf16);
  (x * 2.0).backward(from_values({1, 3}, {2}, DType::f64));
  EXPECT_EQ(x.grad().to_vector(), (Values{2, 6}));
}

// One output may be reached from another; its own seed is added to what arrives.
TEST(Backward, AnOutputInsideAnotherOutputsGraph) {
  const Tensor x = leaf({2}, {1});
  const Tensor y = x * x;
  const Tensor outputs[] = {y, y * 3.0, y};
  backward(outputs);
  EXPECT_EQ(x.grad().to_vector(), Values{(1 + 3 + 1) * 4});
}

TEST(Backward, ALeafMayBeItsOwnOutput) {
  const Tensor x = leaf({2}, {1});
  x.backward();
  EXPECT_EQ(x.grad().to_vector(), Values{1});
}

TEST(Backward, OneElementOutputsNeedNoSeed) {
  const Tensor x = leaf({2}, {1, 1});
  (x * x).backward();
  EXPECT_EQ(x.grad().to_vector(), Values{4});
  EXPECT_EQ(x.grad().sizes(), (Dims{1, 1}));
}

TEST(Backward, EmptyTensors) {
  const Tensor x = leaf({}, {0, 3});
  sum(x * 2.0).backward();
  EXPECT_EQ(to_string(x.grad()), "f32[0, 3]");
}

TEST(GradModeTest, NoGradRecordsNothingAndEndsWithItsScope) {
  const Tensor x = leaf({2}, {1});
  EXPECT_TRUE(grad_enabled());
  {
    const NoGrad off;
    EXPECT_FALSE(grad_enabled());
    EXPECT_FALSE((x * x).requires_grad());
    {
      const GradMode on(true);
      EXPECT_TRUE((x * x).requires_grad());
    }
    EXPECT_FALSE(grad_enabled());
  }
  EXPECT_TRUE(grad_enabled());
  try {
    const NoGrad off;
    throw 1;
  } catch (int) {
  }
  EXPECT_TRUE(grad_enabled());
}

TEST(GradModeTest, ModeIsBackAfterBackwardFails) {
  const Tensor x = leaf({2, 3}, {2});
  EXPECT_NE(message_of([&] { (x * x).backward(); }), "(no error)");
  EXPECT_TRUE(grad_enabled());
}

TEST(GradModeTest, DetachLeavesTheGraphAndSharesMemory) {
  const Tensor x = leaf({2}, {1});
  const Tensor y = x * 3.0;
  const Tensor d = y.detach();
  EXPECT_FALSE(d.requires_grad());
  EXPECT_TRUE(d.is_leaf());
  EXPECT_FALSE(y.is_leaf());
  EXPECT_EQ(d.data(), y.data());
  sum(y * d).backward();
  EXPECT_EQ(x.grad().to_vector(), Values{18});
}

constexpr const char* kSecondTime =
    "[backward] Trying to backward through the graph a second time (or directly access saved "
    "tensors after they have already been freed). Saved intermediate values of the graph are "
    "freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to "
    "backward through the graph a second time or if you need to access saved tensors after "
    "calling backward.";

TEST(RetainGraph, SecondWalkNeedsIt) {
  const Tensor x = leaf({3}, {1});
  const Tensor y = exp(x * x * 0.0);
  y.backward({}, true);
  y.backward();
  EXPECT_ERROR(y.backward(), kSecondTime);
}

// As in PyTorch: nodes that saved nothing have nothing to miss.
TEST(RetainGraph, AGraphThatSavesNothingMayBeWalkedAgain) {
  const Tensor x = leaf({3}, {1});
  const Tensor y = sum(x + x);
  y.backward();
  y.backward();
  EXPECT_EQ(x.grad().to_vector(), Values{4});
}

TEST(RetainGraph, GradReleasesToo) {
  const Tensor x = leaf({3}, {1});
  const Tensor y = x * x;
  EXPECT_EQ(grad({&y, 1}, {&x, 1})[0].item(), 6);
  EXPECT_ERROR(y.backward(), kSecondTime);
}

TEST(RetainGraph, GradLeavesTheRestOfTheGraphAlone) {
  const Tensor x = leaf({3}, {1});
  const Tensor w = leaf({5}, {1});
  const Tensor branch = w * w;  // no way to x
  const Tensor y = x * branch;
  EXPECT_EQ(grad({&y, 1}, {&x, 1})[0].item(), 25);
  sum(branch).backward();  // still has its saved tensors
  EXPECT_EQ(w.grad().item(), 10);
}

TEST(RetainGraph, GradToAnInnerTensorStopsThere) {
  const Tensor x = leaf({3}, {1});
  const Tensor inner = x * x;
  const Tensor y = inner * inner;
  EXPECT_EQ(grad({&y, 1}, {&inner, 1})[0].item(), 18);
  inner.backward();
  EXPECT_EQ(x.grad().item(), 6);
}

TEST(RetainGraph, GradOfAnOutputThatNoInputReachesIsUndefined) {
  const Tensor x = leaf({3}, {1});
  const Tensor w = leaf({5}, {1});
  const Tensor y = w * w;
  EXPECT_FALSE(grad({&y, 1}, {&x, 1})[0].defined());
  y.backward();
  EXPECT_EQ(w.grad().item(), 10);
}

TEST(RetainGraph, SavedTensorsAreFreedByTheWalk) {
  const Tensor x = leaf({1, 2}, {2});
  const int64_t before = memory_stats().allocated_bytes;
  const Tensor y = sum(exp(exp(x)));
  EXPECT_GT(memory_stats().allocated_bytes, before + static_cast<int64_t>(y.bytes()));
  const Tensor g = grad({&y, 1}, {&x, 1})[0];
  EXPECT_EQ(memory_stats().allocated_bytes, before + static_cast<int64_t>(y.bytes() + g.bytes()));
}

TEST(InPlace, ChangedSavedTensorIsFound) {
  const Tensor x = leaf({1, 2}, {2});
  const Tensor factor = from_values({3, 4}, {2});
  const Tensor y = sum(x * factor);
  fill_(factor, 0);
  EXPECT_ERROR(
      y.backward(),
      "[backward] one of the variables needed for gradient computation has been modified by "
      "an inplace operation: [f32[2]] of MulBackward0 is at version 1; expected version 0");
}

TEST(InPlace, AChangeThroughAViewOrOfAResultIsFoundToo) {
  const Tensor x = leaf({1, 2}, {2});
  const Tensor factor = from_values({3, 4}, {2});
  const Tensor y = sum(x * factor);
  zero_(slice(factor, 0, 1, 2));
  EXPECT_NE(message_of([&] { y.backward(); }), "(no error)");
  const Tensor e = exp(x);
  zero_(e.detach());
  EXPECT_ERROR(
      sum(e).backward(),
      "[backward] one of the variables needed for gradient computation has been modified by "
      "an inplace operation: [f32[2]] of ExpBackward0 is at version 1; expected version 0");
}

TEST(InPlace, AChangedTensorThatWasNotSavedDoesNotMatter) {
  const Tensor x = leaf({1, 2}, {2});
  const Tensor shift = from_values({3, 4}, {2});
  const Tensor y = sum(x + shift);
  zero_(shift);
  y.backward();
  EXPECT_EQ(x.grad().to_vector(), (Values{1, 1}));
}

TEST(InPlace, AnOptimizerMayWriteLeavesUnderNoGrad) {
  const Tensor w = leaf({1, 2}, {2});
  sum(w * 2.0).backward();
  {
    const NoGrad off;
    add_(w, w.grad(), -0.5);
  }
  EXPECT_EQ(w.to_vector(), (Values{0, 1}));
  EXPECT_TRUE(w.requires_grad());
  EXPECT_TRUE(w.is_leaf());
}

}  // namespace epilogue::backward_test
