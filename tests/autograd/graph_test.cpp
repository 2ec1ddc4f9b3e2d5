// SPDX-License-Identifier: Apache-2.0
// The graph as a structure: very long, very wide, and gone when its last tensor is.
#include "autograd/leaf.h"
#include "support/test.h"

namespace epilogue::graph_test {

using test::leaf;
using test::Values;

constexpr int kLong = 100'000;

Tensor chain(const Tensor& x) {
  Tensor y = x;
  for (int i = 0; i < kLong; ++i) y = i % 2 == 0 ? y * x : y + 0.0;
  return y;
}

// On a thread's small stack, a recursive destructor or walk would not survive.
TEST(Graph, AVeryLongChainIsFreedWithoutRecursion) {
  const Tensor x = leaf({1}, {1});
  const int64_t before = memory_stats().allocated_bytes;
  std::thread([&] { (void)chain(x); }).join();
  EXPECT_EQ(memory_stats().allocated_bytes, before);
}

TEST(Graph, AVeryLongChainIsWalkedWithoutRecursion) {
  const Tensor x = leaf({1}, {1});
  std::thread([&] { chain(x).backward(); }).join();
  EXPECT_EQ(x.grad().item(), 1 + kLong / 2);
}

TEST(Graph, AGraphOfSecondDerivativesIsFreed) {
  const int64_t before = memory_stats().allocated_bytes;
  {
    const Tensor x = leaf({1}, {1});
    Tensor y = x;
    for (int i = 0; i < 2000; ++i) y = tanh(y) * 1.5;
    const Tensor d = grad({&y, 1}, {&x, 1}, {}, {.retain_graph = true, .create_graph = true})[0];
    EXPECT_TRUE(d.requires_grad());
  }
  EXPECT_EQ(memory_stats().allocated_bytes, before);
}

TEST(Graph, FreedAfterBackwardAndWithout) {
  const int64_t before = memory_stats().allocated_bytes;
  {
    const Tensor w = leaf({1, 2, 3, 4}, {2, 2});
    sum(gelu(linear(ones({3, 2}), w))).backward();
    sum(exp(gelu(linear(ones({3, 2}), w))));
  }
  EXPECT_EQ(memory_stats().allocated_bytes, before);
}

TEST(Graph, ALeafDiesWithTheGraphThatUsesIt) {
  const int64_t before = memory_stats().allocated_bytes;
  const auto live = [&] { return memory_stats().allocated_bytes - before; };
  Tensor y;
  {
    const Tensor x = leaf({3}, {1});
    y = x * x;
  }
  const int64_t bytes = 4;  // of one f32
  EXPECT_EQ(live(), 2 * bytes) << "the graph holds x";
  y.backward();  // adds to a leaf that nobody else holds
  EXPECT_EQ(live(), 3 * bytes) << "x, its gradient and y";
  y = {};
  EXPECT_EQ(live(), 0);
}

// Every node of a grid of diamonds is evaluated once: exponential paths, linear work.
TEST(Graph, DiamondsInARow) {
  const Tensor x = leaf({1}, {1}, DType::f64);
  Tensor y = x;
  for (int i = 0; i < 50; ++i) y = y + y;
  y.backward();
  EXPECT_EQ(x.grad().item(), static_cast<double>(int64_t{1} << 50));
}

TEST(Graph, AWideFanIsSummed) {
  const Tensor x = leaf({2}, {1});
  Tensor total = x * 0.0;
  for (int i = 1; i <= 100; ++i) total = total + x * static_cast<double>(i);
  total.backward();
  EXPECT_EQ(x.grad().item(), 5050);
}

TEST(Graph, RequiresGradCanBeSwitched) {
  Tensor x = from_values({2}, {1});
  EXPECT_FALSE((x * x).requires_grad());
  x.set_requires_grad(true);
  EXPECT_TRUE((x * x).requires_grad());
  x.set_requires_grad(false);
  EXPECT_FALSE((x * x).requires_grad());
}

}  // namespace epilogue::graph_test
