// SPDX-License-Identifier: Apache-2.0
// Views and copies inside the graph.
#include "autograd/leaf.h"
#include "support/test.h"

namespace epilogue::views_test {

using test::leaf;
using test::Values;

// Gives every element of the result its own weight: 1, 2, 3, ...
void backward_weighted(const Tensor& y) {
  Tensor weights = reshape(to(arange(y.numel()), DType::f32) + 1.0, y.sizes());
  y.backward(weights);
}

TEST(ViewGradients, Transpose) {
  const Tensor x = leaf({1, 2, 3, 4, 5, 6}, {2, 3});
  backward_weighted(t(x));
  EXPECT_EQ(x.grad().to_vector(), (Values{1, 3, 5, 2, 4, 6}));
  EXPECT_TRUE(x.grad().is_contiguous());
}

TEST(ViewGradients, ViewAndReshapeOfATransposedTensor) {
  const Tensor x = leaf({1, 2, 3, 4, 5, 6}, {2, 3});
  backward_weighted(view(x, {3, -1}));
  EXPECT_EQ(x.grad().to_vector(), (Values{1, 2, 3, 4, 5, 6}));
  x.set_grad({});
  backward_weighted(reshape(t(x), {6}));
  EXPECT_EQ(x.grad().to_vector(), (Values{1, 3, 5, 2, 4, 6}));
}

TEST(ViewGradients, SliceLeavesZerosAround) {
  const Tensor x = leaf({1, 2, 3, 4, 5, 6}, {6});
  backward_weighted(slice(x, 0, 1, 6, 2));
  EXPECT_EQ(x.grad().to_vector(), (Values{0, 1, 0, 2, 0, 3}));
  x.set_grad({});
  sum(slice(x, 0, 0, 4) + slice(x, 0, 2, 6)).backward();
  EXPECT_EQ(x.grad().to_vector(), (Values{1, 1, 2, 2, 1, 1}));
}

TEST(ViewGradients, CatSplits) {
  const Tensor a = leaf({1, 2}, {2, 1});
  const Tensor b = leaf({3, 4, 5, 6}, {2, 2});
  const Tensor nothing = leaf({}, {0});
  backward_weighted(cat({a, nothing, b}, 1));
  EXPECT_EQ(a.grad().to_vector(), (Values{1, 4}));
  EXPECT_EQ(b.grad().to_vector(), (Values{2, 3, 5, 6}));
}

TEST(ViewGradients, CatOfOneTensorManyTimes) {
  const Tensor x = leaf({1, 2}, {2});
  const std::vector<Tensor> parts(100, x);  // more inputs than a node has bits for
  backward_weighted(cat(parts));
  EXPECT_EQ(x.grad().to_vector(), (Values{10'000, 10'100}));
}

TEST(ViewGradients, ExpandSums) {
  const Tensor x = leaf({1, 2}, {2, 1});
  backward_weighted(expand(x, {3, 2, 2}));
  EXPECT_EQ(x.grad().to_vector(), (Values{1 + 2 + 5 + 6 + 9 + 10, 3 + 4 + 7 + 8 + 11 + 12}));
}

TEST(ViewGradients, CopiesPassThrough) {
  const Tensor x = leaf({1, 2, 3, 4}, {2, 2});
  backward_weighted(contiguous(t(clone(x))));
  EXPECT_EQ(x.grad().to_vector(), (Values{1, 3, 2, 4}));
}

TEST(ViewGradients, ResultsThatAreTheInputKeepItsPlace) {
  const Tensor x = leaf({1, 2}, {2});
  EXPECT_TRUE(contiguous(x).is_leaf());
  const Tensor y = x * 2.0;
  sum(dropout(contiguous(to(y, DType::f32)), 0.5, false)).backward();
  EXPECT_EQ(x.grad().to_vector(), (Values{2, 2}));
}

TEST(ViewGradients, ViewsOfLeavesAreResults) {
  const Tensor x = leaf({1, 2}, {2});
  const Tensor v = view(x, {1, 2});
  EXPECT_FALSE(v.is_leaf());
  EXPECT_TRUE(v.requires_grad());
  EXPECT_EQ(v.data(), x.data());
}

TEST(ViewGradients, MatmulOfManyRanks) {
  struct Case {
    Dims a, b;
  };
  for (const Case& c :
       {Case{{3}, {3}}, Case{{2, 3}, {3}}, Case{{3}, {3, 2}}, Case{{2, 3, 4}, {4, 5}},
        Case{{2, 1, 3, 4}, {5, 4, 2}}, Case{{3, 4}, {2, 4, 2}}}) {
    const Tensor in[] = {test::random_leaf(c.a), test::random_leaf(c.b)};
    const auto result =
        gradcheck([](auto x) { return std::vector<Tensor>{matmul(x[0], x[1])}; }, in);
    EXPECT_TRUE(result.ok) << to_string(c.a) << to_string(c.b) << result.message;
  }
}

}  // namespace epilogue::views_test
