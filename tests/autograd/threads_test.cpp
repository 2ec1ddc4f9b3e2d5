// SPDX-License-Identifier: Apache-2.0
// Graphs on several threads at once; meant for ThreadSanitizer as much as for the values.
#include "autograd/leaf.h"
#include "support/test.h"

namespace epilogue::threads_test {

using test::leaf;
using test::Values;

constexpr int kThreads = 4;

template <class Body>
void on_threads(Body&& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& t : threads) t.join();
}

TEST(Threads, SeparateGraphs) {
  std::vector<Values> results(kThreads);
  on_threads([&](int i) {
    const Tensor w = leaf({1, 2, 3, 4}, {2, 2});
    for (int step = 0; step < 50; ++step) sum(linear(full({3, 2}, i), w) * 2.0).backward();
    results[static_cast<size_t>(i)] = w.grad().to_vector();
  });
  for (int i = 0; i < kThreads; ++i)
    EXPECT_EQ(results[static_cast<size_t>(i)], Values(4, 300.0 * i));
}

// Threads that run one module forward share its parameters.
TEST(Threads, SharedLeavesForward) {
  const Tensor w = leaf({1, 2, 3, 4}, {2, 2});
  std::vector<Tensor> losses(kThreads);
  on_threads([&](int i) {
    for (int step = 0; step < 100; ++step)
      losses[static_cast<size_t>(i)] = sum(linear(full({1, 2}, i + 1), w));
  });
  for (const Tensor& loss : losses) loss.backward();
  EXPECT_EQ(w.grad().to_vector(), Values(4, 1 + 2 + 3 + 4));
}

TEST(Threads, GradOfSharedLeaves) {
  const Tensor w = leaf({1, 2, 3, 4}, {2, 2});
  std::vector<Values> results(kThreads);
  on_threads([&](int i) {
    const Tensor y = sum(linear(full({1, 2}, i), w));
    results[static_cast<size_t>(i)] = grad({&y, 1}, {&w, 1})[0].to_vector();
  });
  for (int i = 0; i < kThreads; ++i) EXPECT_EQ(results[static_cast<size_t>(i)], Values(4, i));
  EXPECT_FALSE(w.grad().defined());
}

TEST(Threads, AGraphMadeHereIsWalkedThere) {
  const Tensor w = leaf({1, 2}, {2});
  const Tensor y = sum(w * w);
  std::thread([&] { y.backward(); }).join();
  EXPECT_EQ(w.grad().to_vector(), (Values{2, 4}));
}

TEST(Threads, GradModeIsPerThread) {
  const NoGrad off;
  bool elsewhere = false;
  std::thread([&] { elsewhere = grad_enabled(); }).join();
  EXPECT_TRUE(elsewhere);
  EXPECT_FALSE(grad_enabled());
}

}  // namespace epilogue::threads_test
