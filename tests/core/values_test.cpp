// SPDX-License-Identifier: Apache-2.0
// Tensors made of the caller's numbers, and numbers beside tensors.
#include "epilogue/autograd.h"
#include "epilogue/nn.h"
#include "epilogue/ops.h"
#include "errors/message_of.h"
#include "support/test.h"

namespace epilogue::values_test {

using test::message_of;
using Values = std::vector<double>;

TEST(FromValues, TakesNumbersOfAnyType) {
  const int one = 1;
  EXPECT_EQ(from_values({one, 2, 3}, {3}).to_vector(), (Values{1, 2, 3}));
  EXPECT_EQ(from_values({1.5F, 2.5F}, {2}).to_vector(), (Values{1.5, 2.5}));
  EXPECT_EQ(from_values({true, false}, {2}, DType::boolean).to_vector(), (Values{1, 0}));
  EXPECT_EQ(from_values({1, 2.5}, {2}).to_vector(), (Values{1, 2.5}));
  EXPECT_EQ(from_values(std::vector<float>{1, 2}, {2}).to_vector(), (Values{1, 2}));
  EXPECT_EQ(from_values(std::vector<int>{3, 4}, {1, 2}).sizes(), (Dims{1, 2}));
  EXPECT_EQ(from_values(std::array<uint8_t, 2>{5, 6}, {2}).to_vector(), (Values{5, 6}));
  EXPECT_EQ(from_values(std::vector<bool>{true, false}, {2}).to_vector(), (Values{1, 0}));
  EXPECT_EQ(from_values({}, {0}).numel(), 0);
}

TEST(FromValues, WholeNumbersStayExact) {
  constexpr int64_t kOdd = (int64_t{1} << 53) + 1;
  const Tensor t = from_values({kOdd, -kOdd}, {2}, DType::i64);
  EXPECT_EQ(t.data_as<int64_t>()[0], kOdd);
  EXPECT_EQ(t.data_as<int64_t>()[1], -kOdd);
}

TEST(FromValues, RowsAndListsNeedNoSizes) {
  EXPECT_EQ(from_values({1, 2, 3}).sizes(), (Dims{3}));
  EXPECT_EQ(from_values({1, 2, 3}, DType::i64).dtype(), DType::i64);
  const Tensor m = from_values({{1, 2, 3}, {4, 5, 6}});
  EXPECT_EQ(m.sizes(), (Dims{2, 3}));
  EXPECT_EQ(m.dtype(), DType::f32);
  EXPECT_EQ(m.to_vector(), (Values{1, 2, 3, 4, 5, 6}));
  EXPECT_ERROR(from_values({{1, 2}, {3, 4, 5}}),
               "[from_values] expected rows of one length, got 2 and 3 values");
  EXPECT_ERROR(from_values(std::vector<int>{1, 2}, {3}),
               "[from_values] expected 3 values for sizes [3], got 2");
}

TEST(FromBlob, WhatIsLentToBeReadIsNeverWritten) {
  const std::vector<float> numbers = {1, 2, 3, 4, 5, 6};
  const Tensor t = Tensor::from_blob(std::span(numbers), {2, 3});
  EXPECT_EQ(t.data(), numbers.data());
  EXPECT_FALSE(t.is_writable());
  EXPECT_EQ((t * 2).to_vector(), (Values{2, 4, 6, 8, 10, 12}));
  const std::string expected =
      " expected a tensor that may be written, got f32[2, 3] over memory that "
      "from_blob(span<const T>) lends to be read; clone it first";
  EXPECT_ERROR(t += 1, "[aten::add_]" + expected);
  EXPECT_ERROR(zero_(t), "[aten::zero_]" + expected);
  EXPECT_NE(message_of([&] { fill_(slice(t, 0, 0, 1), 7); }), "(no error)");
  EXPECT_ERROR(
      nn::uniform_(t),
      "[uniform_] expected a tensor that may be written, got f32[2, 3] over memory that is "
      "lent to be read");
  EXPECT_EQ(numbers, (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(t.version(), 0U);
  EXPECT_TRUE(clone(t).is_writable());
  EXPECT_ERROR(Tensor::from_blob(std::span(numbers), {7}),
               "[from_blob] expected 7 values for sizes [7], got 6");
}

TEST(DimsOfOneNumber, StandForAList) {
  EXPECT_EQ(zeros(3).sizes(), (Dims{3}));
  const Tensor x = from_values({{1, 2}, {3, 4}});
  EXPECT_EQ(sum(x, -1).to_vector(), (Values{3, 7}));
  EXPECT_EQ(sum(x, 0, true).sizes(), (Dims{1, 2}));
  EXPECT_EQ(mean(x, 1).to_vector(), (Values{1.5, 3.5}));
  EXPECT_EQ(view(x, -1).sizes(), (Dims{4}));
  EXPECT_EQ(nn::LayerNorm({4}).weight.sizes(), (Dims{4}));
  EXPECT_EQ(nn::RMSNorm(4).weight.sizes(), (Dims{4}));
}

TEST(Scalars, AreOfTheCategoryOfTheNumber) {
  EXPECT_EQ(scalar(3).dtype(), DType::i64);
  EXPECT_EQ(scalar(3.0F).dtype(), DType::f64);
  EXPECT_EQ(scalar(true).dtype(), DType::boolean);
  EXPECT_EQ(scalar(size_t{4}).item(), 4);
}

TEST(NumbersBesideTensors, OnEitherSide) {
  const Tensor x = from_values({1, 2, 4});
  EXPECT_EQ((1.0 - x).to_vector(), (Values{0, -1, -3}));
  EXPECT_EQ((2 / x).to_vector(), (Values{2, 1, 0.5}));
  EXPECT_EQ((x + 1).dtype(), DType::f32);
  const Tensor whole = arange(3);
  EXPECT_EQ((whole + 1).dtype(), DType::i64);  // as in PyTorch: the category stays
  EXPECT_EQ((3 - whole).to_vector(), (Values{3, 2, 1}));
  EXPECT_EQ((whole * 2).dtype(), DType::i64);
  EXPECT_EQ((whole + 0.5).dtype(), DType::f32);
  EXPECT_EQ((whole / 2).dtype(), DType::f32);
  EXPECT_EQ(where(gt(whole, 1), 7, whole).to_vector(), (Values{0, 1, 7}));
  EXPECT_EQ(where(gt(whole, 1), whole, 7).dtype(), DType::i64);
}

TEST(NumbersBesideTensors, InPlace) {
  Tensor x = from_values({1, 2, 4});
  const Tensor same = x;
  x += 1;
  x *= 2.0;
  x -= from_values({1, 1, 1});
  x /= 2;
  EXPECT_EQ(same.to_vector(), (Values{1.5, 2.5, 4.5}));
  x -= 0.5;
  x /= from_values({1, 2, 4});
  x *= x;
  x += x;
  EXPECT_EQ(same.to_vector(), (Values{2, 2, 2}));
  slice(x, 0, 1, 2) += 5;
  EXPECT_EQ(same.to_vector(), (Values{2, 7, 2}));
  EXPECT_EQ(same.version(), 9U);
  Tensor whole = arange(3);
  whole += 1;
  whole -= 2;
  EXPECT_EQ(whole.to_vector(), (Values{-1, 0, 1}));
  EXPECT_ERROR(whole += 0.5,
               "[aten::add_] expected a floating tensor to write floating values to, got i64[3]");
  x.set_requires_grad(true);
  EXPECT_HAS(message_of([&] { x += 1; }), "outside the autograd graph");
  const NoGrad no_grad;
  x += 1;
  EXPECT_EQ(same.to_vector(), (Values{3, 8, 3}));
}

}  // namespace epilogue::values_test
