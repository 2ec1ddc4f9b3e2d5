// SPDX-License-Identifier: Apache-2.0
// The device's pointwise functions against the ops' references. (The fast forms run on a device
// only: device_ops_test.)
#include "epilogue/ops.h"
#include "math_on_host.h"
#include "ops/ops.h"
#include "support/test.h"

namespace epilogue::cuda::math_test {

struct Case {
  PointwiseFn fn;
  const OpDef* op;
  std::vector<Attr> attrs = {};
};
const Case kNamed[] = {{PointwiseFn::neg, &kNeg},
                       {PointwiseFn::relu, &kRelu},
                       {PointwiseFn::sigmoid, &kSigmoid},
                       {PointwiseFn::tanh, &kTanh},
                       {PointwiseFn::exp, &kExp},
                       {PointwiseFn::gelu_tanh, &kGelu, {int64_t{1}}},
                       {PointwiseFn::gelu_erf, &kGelu, {int64_t{0}}},
                       {PointwiseFn::silu, &kSilu},
                       {PointwiseFn::add, &kAdd, {1.0}},
                       {PointwiseFn::sub, &kSub, {1.0}},
                       {PointwiseFn::mul, &kMul},
                       {PointwiseFn::div, &kDiv},
                       {PointwiseFn::relu_backward, &kThresholdBackward, {0.0}},
                       {PointwiseFn::sigmoid_backward, &kSigmoidBackward},
                       {PointwiseFn::tanh_backward, &kTanhBackward},
                       {PointwiseFn::gelu_tanh_backward, &kGeluBackward, {int64_t{1}}},
                       {PointwiseFn::gelu_erf_backward, &kGeluBackward, {int64_t{0}}},
                       {PointwiseFn::silu_backward, &kSiluBackward}};

// Those and the rest of the table, with its parameters.
const std::vector<Case> kCases = [] {
  std::vector<Case> cases(std::begin(kNamed), std::end(kNamed));
  for (auto i = static_cast<size_t>(PointwiseFn::leaky_relu); i < kPointwiseFns; ++i) {
    const PointwiseRow& row = kPointwiseTable[i];
    Case c{row.fn, &function_op(row.fn)};
    for (size_t k = 0; k < parameter_count(row); ++k)
      c.attrs.emplace_back(static_cast<double>(row.parameters[k].value));
    cases.push_back(c);
  }
  return cases;
}();

// The reference, in double; the operand before the last is a, the last one b.
double want(const Case& c, float a, float b) {
  const PointwiseRow& row = pointwise_row(c.fn);
  std::vector<Tensor> in = {from_values({a}, {1}, DType::f64)};
  if (row.operands > 1) in.push_back(from_values({b}, {1}, DType::f64));
  if (row.has_condition)
    in.insert(in.begin(), to(from_values({a}, {1}, DType::f64), DType::boolean));
  const bool is_truth = row.result == PointwiseResult::truth;
  Tensor out = empty({1}, is_truth ? DType::boolean : DType::f64);
  c.op->reference(Call{*c.op, in, c.attrs, {&out, 1}});
  return out.item();
}
float got(const Case& c, float a, float b) {
  return pointwise_row(c.fn).has_condition ? on_host(c.fn, {a, a, b}) : on_host(c.fn, {a, b});
}

TEST(DeviceMath, AgreesWithTheReferences) {
  for (const Case& c : kCases)
    for (float a = -8; a <= 8; a += 0.125F)
      for (const float b : {-3.0F, -0.5F, 0.0F, 0.25F, 2.0F}) {
        if (c.fn == PointwiseFn::div && b == 0) continue;
        const double expected = want(c, a, b);
        if (std::isnan(expected)) {
          EXPECT_TRUE(std::isnan(got(c, a, b))) << pointwise_fn_name(c.fn) << "(" << a << ")";
          continue;
        }
        EXPECT_NEAR(got(c, a, b), expected, 1e-6 + 2e-6 * std::abs(expected))
            << pointwise_fn_name(c.fn) << "(" << a << ", " << b << ")";
        if (operand_count(c.fn) == 1) break;
      }
}

// Steps of norms and softmax: no ops of their own.
TEST(DeviceMath, LogarithmsAndRoots) {
  for (const float a : {1e-30F, 0.25F, 1.0F, 3.0F, 1e30F}) {
    EXPECT_FLOAT_EQ(on_host(PointwiseFn::log, {a}), std::log(a));
    EXPECT_FLOAT_EQ(on_host(PointwiseFn::rsqrt, {a}), 1 / std::sqrt(a));
  }
  EXPECT_TRUE(std::isnan(on_host(PointwiseFn::log, {-1})));
  EXPECT_TRUE(std::isinf(on_host(PointwiseFn::rsqrt, {0})));
}

TEST(DeviceMath, AlphaScalesTheSecondOperand) {
  EXPECT_EQ(on_host(PointwiseFn::add, {1, 3}, {2}), 7);
  EXPECT_EQ(on_host(PointwiseFn::sub, {1, 3}, {2}), -5);
}

TEST(DeviceMath, ExtremesAreTheReferences) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Case& c : kCases)
    for (const float a : {inf, -inf, nan, 1e20F, -1e20F, 1e38F}) {
      if (operand_count(c.fn) > 1) continue;
      const auto expected = static_cast<float>(want(c, a, 0));
      const float got = on_host(c.fn, {a});
      EXPECT_TRUE((std::isnan(got) && std::isnan(expected)) || got == expected)
          << pointwise_fn_name(c.fn) << "(" << a << ") = " << got << ", expected " << expected;
    }
  // Slopes far out: 1 and 0.
  for (const PointwiseFn fn : {PointwiseFn::gelu_tanh_backward, PointwiseFn::gelu_erf_backward,
                               PointwiseFn::silu_backward}) {
    EXPECT_EQ(on_host(fn, {3, 1e20F}), 3) << pointwise_fn_name(fn);
    EXPECT_EQ(on_host(fn, {3, -1e20F}), 0) << pointwise_fn_name(fn);
    EXPECT_TRUE(std::isnan(on_host(fn, {3, nan}))) << pointwise_fn_name(fn);
  }
}

}  // namespace epilogue::cuda::math_test
