// SPDX-License-Identifier: Apache-2.0
// Activations: values of the published formulas, NaN and infinities, dtypes, second derivatives.
#include "op_testing.h"
#include "support/test.h"

namespace epilogue::activations_test {

using namespace testing;

// x, gelu, gelu', gelu_tanh, gelu_tanh', silu, silu': the formulas in double precision.
constexpr double kGolden[][7] = {
    {-5, -1.43325785934e-06, -7.1469460018e-06, -2.29179619726e-07, -1.54636198766e-06,
     -0.0334642546214, -0.0265474324297},
    {-1, -0.158655253931, -0.0833154705877, -0.158808009392, -0.0829640838458, -0.26894142137,
     0.0723294881285},
    {-0.5, -0.154268769363, 0.132504875344, -0.154285990175, 0.132630096465, -0.188770334399,
     0.260038812697},
    {0, 0, 0.5, 0, 0.5, 0, 0.5},
    {0.5, 0.345731230637, 0.867495124656, 0.345714009825, 0.867369903535, 0.311229665601,
     0.739961187303},
    {1, 0.841344746069, 1.08331547059, 0.841191990608, 1.08296408385, 0.73105857863,
     0.927670511871},
    {3, 2.99595030591, 1.0119456472, 2.99636260792, 1.01158416663, 2.85772238047, 1.08810410602},
    {5, 4.99999856674, 1.00000714695, 4.99999977082, 1.00000154636, 4.96653574538, 1.02654743243}};

TEST(Activations, GoldenValues) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    for (const auto& row : kGolden) {
      const Tensor x = full({1}, row[0], dtype);
      const Tensor one = ones({1}, dtype);
      const double tolerance = dtype == DType::f64 ? 1e-11 : 5e-7;
      auto near = [&](const Tensor& got, double want) {
        EXPECT_NEAR(got.item(), want, tolerance) << "x = " << row[0];
      };
      near(gelu(x), row[1]);
      near(run_op(kGeluBackward, {one, x}, {int64_t{0}}), row[2]);
      near(gelu(x, Gelu::tanh), row[3]);
      near(run_op(kGeluBackward, {one, x}, {int64_t{1}}), row[4]);
      near(silu(x), row[5]);
      near(run_op(kSiluBackward, {one, x}), row[6]);
    }
  }
}

TEST(Activations, NanAndInfinity) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const Tensor x = from_values({nan, inf, -inf}, {3}, dtype);
    const std::vector<Tensor> all = {relu(x), sigmoid(x), tanh(x),
                                     silu(x), gelu(x),    gelu(x, Gelu::tanh)};
    for (const Tensor& y : all) EXPECT_TRUE(std::isnan(y.to_vector()[0]));
    EXPECT_EQ(relu(x).to_vector()[1], inf);
    EXPECT_EQ(relu(x).to_vector()[2], 0);
    EXPECT_EQ(sigmoid(x).to_vector()[1], 1);
    EXPECT_EQ(sigmoid(x).to_vector()[2], 0);
    EXPECT_EQ(tanh(x).to_vector()[2], -1);
    EXPECT_EQ(gelu(x).to_vector()[1], inf);
    EXPECT_EQ(silu(x).to_vector()[1], inf);
  }
}

TEST(Activations, DTypes) {
  const Tensor i = from_values({-2, 0, 3}, {3}, DType::i64);
  EXPECT_EQ(relu(i).dtype(), DType::i64);
  EXPECT_EQ(relu(i).to_vector(), (std::vector<double>{0, 0, 3}));
  EXPECT_EQ(sigmoid(i).dtype(), DType::f32);
  EXPECT_NEAR(tanh(i).to_vector()[2], std::tanh(3), 1e-6);
  EXPECT_ERROR(gelu(i), "[aten::gelu] expected a floating tensor, got i64[3]");
  EXPECT_ERROR(silu(i), "[aten::silu] expected a floating tensor, got i64[3]");
  EXPECT_ERROR(relu(ones({2}, DType::boolean)), "[aten::relu] expected numbers, got bool[2]");
  EXPECT_ERROR(run_op(kGelu, {ones({2})}, {int64_t{2}}),
               "[aten::gelu] expected approximate 0 (none) or 1 (tanh), got 2");
}

// d/dx sum_i(w_i f(dy, x)_i) of a backward op, by its rule and by central differences in f64.
void check_second_derivative(const OpDef& op, std::vector<Attr> attrs, double low, double high) {
  const Tensor dy = uniform({20}, -2, 2, DType::f64);
  const Tensor x = uniform({20}, low, high, DType::f64);
  const Tensor w = uniform({20}, -1, 1, DType::f64);
  const std::vector<Tensor> in = {dy, x};
  const std::vector<OutMeta> metas = {{dy.sizes(), DType::f64}, {x.sizes(), DType::f64}};
  const bool needs[] = {true, true};
  const Gradients grads = op.vjp(GradCall{in, {}, metas, attrs, w, needs});
  for (size_t k = 0; k < 2; ++k) {
    if (!grads[k].defined()) continue;
    auto moved = [&](double h) {
      std::vector<Tensor> at = in;
      at[k] = add(at[k], full({}, h, DType::f64));
      return run_op(op, at, attrs)[0];
    };
    const double h = 1e-5;
    const Tensor slope = mul(w, div(sub(moved(h), moved(-h)), full({}, 2 * h, DType::f64)));
    const std::vector<double> want = slope.to_vector();
    const std::vector<double> got = grads[k].to_vector();
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 1e-7) << op.name << " input " << k;
  }
}

TEST(Activations, BackwardOpsHaveGradientsOfTheirOwn) {
  check_second_derivative(kSigmoidBackward, {}, 0, 1);
  check_second_derivative(kTanhBackward, {}, -1, 1);
  check_second_derivative(kSiluBackward, {}, -5, 5);
  check_second_derivative(kGeluBackward, {int64_t{0}}, -4, 4);
  check_second_derivative(kGeluBackward, {int64_t{1}}, -4, 4);
  check_second_derivative(kThresholdBackward, {0.0}, 0.1, 1);
}

}  // namespace epilogue::activations_test
