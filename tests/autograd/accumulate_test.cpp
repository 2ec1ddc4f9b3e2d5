// SPDX-License-Identifier: Apache-2.0
// Gradients of leaves: accumulation, stolen and copied gradients, layouts; and grad(), which leaves
// them alone.
#include "autograd/leaf.h"
#include "autograd/run_log.h"
#include "errors/message_of.h"
#include "support/test.h"

namespace epilogue::accumulate_test {

using test::leaf;
using test::RunLog;
using test::Values;

TEST(Accumulate, AddsInPlaceToTheGradThatIsThere) {
  const Tensor x = leaf({1, 2}, {2});
  sum(x * 3.0).backward();
  const Tensor kept = x.grad();
  sum(x * 4.0).backward();
  EXPECT_TRUE(x.grad().is_same(kept));
  EXPECT_EQ(kept.to_vector(), (Values{7, 7}));
  x.set_grad({});
  EXPECT_FALSE(x.grad().defined());
  sum(x * 4.0).backward();
  EXPECT_EQ(x.grad().to_vector(), (Values{4, 4}));
  EXPECT_EQ(kept.to_vector(), (Values{7, 7}));
}

TEST(Accumulate, AddsToAGradOfTheUser) {
  const Tensor x = leaf({1, 2}, {2});
  const Tensor mine = from_values({10, 20}, {2});
  x.set_grad(mine);
  sum(x * 3.0).backward();
  EXPECT_EQ(mine.to_vector(), (Values{13, 23}));
}

TEST(Accumulate, SetGradChecksShapeAndDType) {
  const Tensor x = leaf({1, 2}, {2});
  EXPECT_ERROR(x.set_grad(ones({3})), "[set_grad] expected a gradient like f32[2], got f32[3]");
  EXPECT_ERROR(x.set_grad(ones({2}, DType::bf16)),
               "[set_grad] expected a gradient like f32[2], got bf16[2]");
}

TEST(Accumulate, LeavesWithoutGradStayUndefined) {
  const Tensor x = leaf({1, 2}, {2});
  const Tensor unused = leaf({1}, {1});
  const Tensor constant = from_values({5, 5}, {2});
  sum(x * constant).backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(unused.grad().defined());
  EXPECT_FALSE(constant.grad().defined());
}

TEST(Accumulate, ResultsInsideTheGraphKeepNoGrad) {
  const Tensor x = leaf({1, 2}, {2});
  const Tensor y = x * x;
  sum(y).backward();
  EXPECT_FALSE(y.grad().defined());
}

// The backward of a Linear: two products and a sum, whose results become the gradients themselves.
TEST(Accumulate, FreshGradientsAreKeptWithoutACopy) {
  const Tensor x = leaf({1, 2, 3, 4}, {2, 2});
  const Tensor w = leaf({1, 0, 0, 1, 1, 1}, {3, 2});
  const Tensor b = leaf({0, 0, 0}, {3});
  const Tensor y = linear(x, w, b);
  const Tensor upstream = ones({2, 3});
  const RunLog log;
  y.backward(upstream);
  EXPECT_EQ(log.count("aten::clone"), 0);
  EXPECT_EQ(log.count("aten::add_"), 0);
  EXPECT_EQ(log.count("aten::mm"), 2);
  EXPECT_EQ(log.kernels(), 3);
}

TEST(Accumulate, WeightGradientsHaveTheWeightsLayout) {
  for (const Dims& sizes : {Dims{3, 2}, Dims{1, 2}, Dims{3, 1}, Dims{1, 1}}) {
    const Tensor w = randn(sizes).set_requires_grad(true);
    const Tensor x = randn({4, sizes[1]});
    sum(linear(x, w)).backward();
    EXPECT_TRUE(w.grad().is_contiguous()) << to_string(sizes);
    EXPECT_EQ(w.grad().sizes(), sizes);
  }
}

TEST(Accumulate, TwoLeavesNeverShareOneGradient) {
  const Tensor x = leaf({1, 2}, {2});
  const Tensor y = leaf({3, 4}, {2});
  const Tensor z = leaf({5, 6}, {2});
  const Tensor seed = from_values({1, 1}, {2});
  (x + y + z).backward(seed);
  mul_(x.grad(), 10.0);
  EXPECT_EQ(y.grad().to_vector(), (Values{1, 1}));
  EXPECT_EQ(z.grad().to_vector(), (Values{1, 1}));
  EXPECT_EQ(seed.to_vector(), (Values{1, 1}));
}

TEST(Accumulate, AGradientOfTheUserIsCopied) {
  float memory[2] = {1, 2};
  const Tensor x = leaf({1, 2}, {2});
  x.backward(Tensor::from_blob(memory, {2}));
  EXPECT_NE(x.grad().data(), memory);
  const Tensor y = leaf({1, 2}, {1, 2});
  view(y, {2}).backward(Tensor::from_blob(memory, {2}));
  EXPECT_NE(y.grad().data(), memory);
  memory[0] = 9;
  EXPECT_EQ(x.grad().to_vector(), (Values{1, 2}));
  EXPECT_EQ(y.grad().to_vector(), (Values{1, 2}));
}

TEST(Accumulate, ExpandedGradientsAreWrittenOut) {
  for (const bool create_graph : {false, true}) {
    const Tensor x = leaf({1, 2, 3}, {3});
    sum(x).backward({}, false, create_graph);
    EXPECT_TRUE(x.grad().is_contiguous()) << create_graph;
    sum(x * x).backward();
    EXPECT_EQ(x.grad().to_vector(), (Values{3, 5, 7})) << create_graph;
  }
}

// Keeping a slice would keep the whole gradient of the concatenation alive.
TEST(Accumulate, PartsOfALargerBlockAreCopied) {
  const Tensor x = leaf({1, 2}, {2});
  const Tensor constant = zeros({1000});
  const int64_t before = memory_stats().allocated_bytes;
  sum(cat({constant, x}) * 2.0).backward();
  EXPECT_EQ(x.grad().to_vector(), (Values{2, 2}));
  EXPECT_EQ(memory_stats().allocated_bytes - before, 2 * 4);
}

TEST(Accumulate, CreateGraphKeepsGradientsApart) {
  const Tensor x = leaf({1, 2}, {2});
  const Tensor y = leaf({3, 4}, {2});
  sum(x + y).backward({}, false, true);
  {
    const NoGrad off;
    zero_(x.grad());
  }
  EXPECT_EQ(y.grad().to_vector(), (Values{1, 1}));
}

TEST(Accumulate, CreateGraphAddsOutOfPlace) {
  const Tensor x = leaf({2}, {1});
  (x * x).backward({}, false, true);
  const Tensor first = x.grad();
  EXPECT_TRUE(first.requires_grad());
  (x * x).backward({}, false, true);
  EXPECT_EQ(first.item(), 4);
  EXPECT_EQ(x.grad().item(), 8);
  const Tensor total = x.grad();
  x.set_grad({});  // break the cycle from the leaf through its gradient's graph
  EXPECT_EQ(grad({&total, 1}, {&x, 1})[0].item(), 4);
}

TEST(Grad, LeavesEveryGradAlone) {
  const Tensor x = leaf({1, 2}, {2});
  const Tensor w = leaf({3, 4}, {2});
  const Tensor y = sum(x * w);
  const auto gradients = grad({&y, 1}, {&x, 1});
  EXPECT_EQ(gradients[0].to_vector(), (Values{3, 4}));
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(w.grad().defined());
}

TEST(Grad, OfResultsLeavesAndUnusedInputs) {
  const Tensor x = leaf({2}, {1});
  const Tensor a = x * 3.0;
  const Tensor b = a * a;
  const Tensor y = b + a;
  const Tensor unused = leaf({1}, {1});
  const Tensor inputs[] = {a, unused, x, b, y, x};
  const auto g = grad({&y, 1}, inputs);
  EXPECT_EQ(g[0].item(), 13);
  EXPECT_FALSE(g[1].defined());
  EXPECT_EQ(g[2].item(), 39);
  EXPECT_EQ(g[3].item(), 1);
  EXPECT_EQ(g[4].item(), 1);
  EXPECT_EQ(g[5].item(), 39);
}

TEST(Grad, SeveralOutputs) {
  const Tensor x = leaf({2}, {1});
  const Tensor outputs[] = {x * x, x * 5.0};
  const Tensor seeds[] = {Tensor(), from_values({10}, {1})};
  EXPECT_EQ(grad(outputs, {&x, 1}, seeds)[0].item(), 54);
}

}  // namespace epilogue::accumulate_test
