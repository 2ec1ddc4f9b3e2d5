// SPDX-License-Identifier: Apache-2.0
// PyTorch's values for functions of the table at their edges: dtypes, ties, NaN, large integers.
#include "ops/op_testing.h"
#include "ops/pointwise/pointwise.h"
#include "support/test.h"

namespace epilogue::testing::functions_test {

using Doubles = std::vector<double>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor integers(std::initializer_list<double> values) {
  return to(from_values(values, {static_cast<int64_t>(values.size())}), DType::i64);
}

TEST(Functions, EveryRowOfTheTableIsItsOp) {
  for (const PointwiseRow& row : kPointwiseTable) {
    const OpDef* op = pointwise_op_of(row.fn);
    if (row.op.empty()) {
      EXPECT_EQ(op, nullptr) << row.name;
      continue;
    }
    ASSERT_NE(op, nullptr) << row.name;
    EXPECT_EQ(op->name, row.op);
    if (row.fn >= PointwiseFn::leaky_relu) {
      EXPECT_EQ(op, &function_op(row.fn)) << row.name;
    }
    EXPECT_TRUE(op->pointwise) << row.name;
    const uint32_t inputs = op->saves & ~kSaveOutput;
    EXPECT_EQ(row.saves == PointwiseSaves::output, (op->saves & kSaveOutput) != 0) << row.name;
    EXPECT_EQ(row.saves == PointwiseSaves::nothing, op->saves == 0) << row.name;
    EXPECT_EQ(row.saves == PointwiseSaves::input, inputs != 0) << row.name;
  }
}

TEST(Functions, ComparisonsGiveBooleansOfAnyDtype) {
  const Tensor a = integers({1, 2, 3});
  const Tensor b = integers({3, 2, 1});
  EXPECT_EQ(eq(a, b).dtype(), DType::boolean);
  EXPECT_EQ(lt(a, b).to_vector(), (Doubles{1, 0, 0}));
  EXPECT_EQ(ge(a, b).to_vector(), (Doubles{0, 1, 1}));
  EXPECT_EQ(gt(a, 1.5).to_vector(), (Doubles{0, 1, 1}));
  EXPECT_EQ(ne(to(a, DType::bf16), 2).to_vector(), (Doubles{1, 0, 1}));
  EXPECT_EQ(le(to(a, DType::f64), to(b, DType::f32)).to_vector(), (Doubles{1, 1, 0}));
}

// Integers are compared as integers, however large.
TEST(Functions, LargeIntegersStayApart) {
  const Tensor a = full({1}, 0x1p53, DType::i64);
  const Tensor next = add(a, full({1}, 1, DType::i64));
  EXPECT_EQ(eq(a, next).item(), 0);
  EXPECT_EQ(eq(sum(a), sum(next)).item(), 0) << "of no dimensions";
  EXPECT_EQ(eq(sub(maximum(a, next), a), 1).item(), 1);
  EXPECT_EQ(eq(sub(clamp(next, 0), a), 1).item(), 1);
}

// A number is what self's dtype holds: 0.1 is found among tenths.
TEST(Functions, NumbersAreComparedInTheTensorsDtype) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    EXPECT_EQ(eq(full({40}, 0.1, dtype), 0.1).to_vector(), Doubles(40, 1)) << dtype_name(dtype);
    EXPECT_EQ(lt(full({40}, 0.1, dtype), 0.1).to_vector(), Doubles(40, 0)) << dtype_name(dtype);
  }
}

TEST(Functions, NanComesThroughBoundsAndExtrema) {
  const Tensor x = from_values({1, std::numeric_limits<float>::quiet_NaN(), 3}, {3});
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor t = to(x, dtype);
    EXPECT_TRUE(std::isnan(clamp(t, 0, 2).to_vector()[1]));
    EXPECT_TRUE(std::isnan(maximum(t, full({3}, 5, dtype)).to_vector()[1]));
    EXPECT_TRUE(std::isnan(minimum(full({3}, 0, dtype), t).to_vector()[1]));
    EXPECT_EQ(clamp(t, 2, 1).to_vector()[2], 1) << "the upper bound wins";
    EXPECT_TRUE(std::isnan(clamp(t, kNan, 1).to_vector()[0]));
    EXPECT_EQ(sgn(t).to_vector()[1], 0);
    EXPECT_EQ(eq(t, t).to_vector(), (Doubles{1, 0, 1}));
  }
}

Doubles gradient_of(Tensor x, const std::function<Tensor(const Tensor&)>& f) {
  x.set_requires_grad(true);
  sum(f(x)).backward();
  const Doubles dx = x.grad().to_vector();
  x.set_grad({});
  x.set_requires_grad(false);
  return dx;
}

TEST(Functions, GradientsAtKinksArePyTorchs) {
  const Tensor x = from_values({-1, 0, 1, 2}, {4});
  EXPECT_EQ(gradient_of(x, [](const Tensor& t) { return clamp(t, 0, 1); }), (Doubles{0, 1, 1, 0}));
  EXPECT_EQ(gradient_of(x, [](const Tensor& t) { return abs(t); }), (Doubles{-1, 0, 1, 1}));
  EXPECT_EQ(gradient_of(x, [](const Tensor& t) { return leaky_relu(t, 0.5); }),
            (Doubles{0.5, 0.5, 1, 1}));
  const Tensor y = from_values({0, 0, 3, 2}, {4});
  EXPECT_EQ(gradient_of(x, [&](const Tensor& t) { return maximum(t, y); }),
            (Doubles{0, 0.5, 0, 0.5}));
  EXPECT_EQ(gradient_of(x, [&](const Tensor& t) { return minimum(y, t); }),
            (Doubles{1, 0.5, 1, 0.5}));
  EXPECT_EQ(gradient_of(x, [](const Tensor& t) { return pow(t, 0); }), (Doubles{0, 0, 0, 0}));
}

TEST(Functions, DtypesOfResults) {
  const Tensor a = integers({1, -2, 3});
  EXPECT_EQ(abs(a).dtype(), DType::i64);
  EXPECT_EQ(clamp(a, 0).dtype(), DType::i64);
  EXPECT_EQ(clamp(a, 0).to_vector(), (Doubles{1, 0, 3}));
  EXPECT_EQ(sqrt(a).dtype(), DType::f32);
  EXPECT_EQ(pow(a, 2).dtype(), DType::f32);
  EXPECT_EQ(maximum(a, to(a, DType::f16)).dtype(), DType::f16);
  const Tensor mask = gt(a, 0);
  EXPECT_EQ(where(mask, a, 0.5).dtype(), DType::f32);
  EXPECT_EQ(where(mask, a, a).dtype(), DType::i64);
  EXPECT_EQ(where(mask, to(a, DType::bf16), 0.0).dtype(), DType::bf16);
}

}  // namespace epilogue::testing::functions_test
