// SPDX-License-Identifier: Apache-2.0
// Matrix products of integers: exact, wrapping, with a bias.
#include "epilogue/ops.h"
#include "errors/message_of.h"
#include "support/test.h"

namespace epilogue::test::integer_product_test {

std::vector<int64_t> values(const Tensor& t) {
  const auto* data = static_cast<const int64_t*>(t.data());
  return {data, data + t.numel()};
}

class IntegerProduct : public ::testing::Test {
 protected:
  Tensor a = from_values({1, 2, 3, 4}, {2, 2}, DType::i64);
  Tensor b = from_values({5, 6, 7, 8}, {2, 2}, DType::i64);
  Tensor bias = from_values({100, 200}, {2}, DType::i64);
};

TEST_F(IntegerProduct, AddmmAddsTheScaledBias) {
  EXPECT_EQ(values(addmm(bias, a, b, 1, 1)), (std::vector<int64_t>{119, 222, 143, 250}));
  EXPECT_EQ(values(addmm(bias, a, b, 2, -1)), (std::vector<int64_t>{181, 378, 157, 350}));
}

TEST_F(IntegerProduct, BeyondTheIntegersOfADoubleIsExact) {
  const int64_t big = (int64_t{1} << 53) + 1;  // no double
  static_cast<int64_t*>(bias.data())[0] = big;
  EXPECT_EQ(values(addmm(bias, a, b, 1, 1))[0], big + 19);
}

TEST_F(IntegerProduct, FractionalScalesAreRefused) {
  EXPECT_ERROR(
      addmm(bias, a, b, 0.5, 1),
      "[aten::addmm] expected an integer beta and alpha for integer tensors, got 0.500000");
}

TEST(BoolTensor, RefusesInPlaceWritesOfIntegers) {
  const Tensor flags = zeros({2}, DType::boolean);
  const Tensor two = full({2}, 2, DType::i64);
  EXPECT_ERROR(mul_(flags, two),
               "[aten::mul_] expected bool values to write to a bool tensor, got i64[2]");
}

}  // namespace epilogue::test::integer_product_test
