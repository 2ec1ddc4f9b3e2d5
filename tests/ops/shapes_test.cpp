// SPDX-License-Identifier: Apache-2.0
// permute, squeeze, unsqueeze, split, chunk and stack beyond what the op table checks.
#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "errors/message_of.h"
#include "support/test.h"

namespace epilogue::test::shapes_test {

using Values = std::vector<double>;

std::vector<Dims> sizes_of(const std::vector<Tensor>& parts) {
  std::vector<Dims> sizes;
  for (const Tensor& t : parts) sizes.push_back(t.sizes());
  return sizes;
}

TEST(Shapes, AreViews) {
  const Tensor x = view(arange(24), {2, 3, 4});
  for (const Tensor& y : {permute(x, {2, 0, 1}), unsqueeze(x, 1), squeeze(unsqueeze(x, 0)),
                          split(x, 2)[0], chunk(x, 2)[0]})
    EXPECT_EQ(y.data(), x.data());
  EXPECT_EQ(permute(x, {2, 0, 1}).sizes(), (Dims{4, 2, 3}));
  EXPECT_EQ(unsqueeze(x, -1).sizes(), (Dims{2, 3, 4, 1}));
  EXPECT_EQ(squeeze(zeros({1, 3, 1}), 0).sizes(), (Dims{3, 1}));
  EXPECT_EQ(squeeze(zeros({1, 3, 1}), 1).sizes(), (Dims{1, 3, 1}));
  EXPECT_EQ(squeeze(zeros({1, 3, 1}), {0, -1}).sizes(), (Dims{3}));
}

TEST(Shapes, SplitAndChunkAsPyTorch) {
  const Tensor seven = arange(7);
  EXPECT_EQ(sizes_of(chunk(seven, 3)), (std::vector<Dims>{{3}, {3}, {1}}));
  EXPECT_EQ(sizes_of(chunk(arange(5), 4)), (std::vector<Dims>{{2}, {2}, {1}}));
  EXPECT_EQ(sizes_of(split(seven, 3)), (std::vector<Dims>{{3}, {3}, {1}}));
  EXPECT_EQ(sizes_of(split(seven, {1, 0, 6})), (std::vector<Dims>{{1}, {0}, {6}}));
  EXPECT_EQ(sizes_of(split(zeros({0}), 2)), (std::vector<Dims>{{0}}));
  EXPECT_EQ(sizes_of(chunk(zeros({0}), 3)), (std::vector<Dims>{{0}, {0}, {0}}));
  const std::vector<Tensor> columns = split(view(arange(6), {2, 3}), 2, -1);
  ASSERT_EQ(columns.size(), 2U);
  EXPECT_EQ(columns[0].to_vector(), (Values{0, 1, 3, 4}));
  EXPECT_EQ(columns[1].to_vector(), (Values{2, 5}));
}

TEST(Shapes, GradientsGoBackThroughParts) {
  Tensor x = ones({5});
  x.set_requires_grad(true);
  const std::vector<Tensor> parts = split(x, {2, 3});
  sum(stack({sum(parts[0]) * 2, sum(parts[1]) * 3})).backward();
  EXPECT_EQ(x.grad().to_vector(), (Values{2, 2, 3, 3, 3}));
}

TEST(Shapes, StackJoinsInANewDimension) {
  const Tensor a = arange(2);
  const Tensor b = arange(2) + 10;
  EXPECT_EQ(stack({a, b}).to_vector(), (Values{0, 1, 10, 11}));
  EXPECT_EQ(stack({a, b}, -1).to_vector(), (Values{0, 10, 1, 11}));
  EXPECT_EQ(stack({a, b}).dtype(), DType::i64);
}

TEST(Shapes, Messages) {
  const Tensor x = zeros({2, 3});
  EXPECT_ERROR(permute(x, 0),
               "[aten::permute] expected one number per dimension of f32[2, 3], got [0]");
  EXPECT_ERROR(permute(x, {0, -2}), "[aten::permute] expected each dimension once, got [0, -2]");
  EXPECT_ERROR(squeeze(x, 2), "[aten::squeeze] expected a dimension in [-2, 1], got 2");
  EXPECT_ERROR(unsqueeze(x, 3), "[aten::unsqueeze] expected a dimension in [-3, 2], got 3");
  EXPECT_ERROR(split(x, 0), "[aten::split] expected a split_size of 1 or more, got 0");
  EXPECT_ERROR(split(x, {1, 2}), "[aten::split] expected sizes that add up to 2, got 3");
  EXPECT_ERROR(chunk(x, 0), "[aten::chunk] expected 1 or more chunks, got 0");
  EXPECT_ERROR(chunk(x, 2, 2), "[aten::chunk] expected a dimension in [-2, 1], got 2");
  EXPECT_ERROR(split({}, 1), "[aten::split] expected a tensor for 'self', got undefined");
  EXPECT_ERROR(stack({x, zeros({3})}),
               "[aten::stack] expected tensors of one shape, got f32[2, 3] and f32[3]");
  EXPECT_ERROR(stack(std::span<const Tensor>()),
               "[aten::stack] expected at least one tensor, got none");
}

}  // namespace epilogue::test::shapes_test
