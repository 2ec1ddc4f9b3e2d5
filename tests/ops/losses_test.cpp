// SPDX-License-Identifier: Apache-2.0
// Losses and dropout beyond the op table: golden values, ignored targets, larger shapes, messages.
#include "base/thread_pool.h"
#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "errors/message_of.h"
#include "ops/ops.h"
#include "ops/run_op.h"
#include "ops/table_support.h"
#include "support/test.h"

namespace epilogue::test::losses_test {

// Computed independently from the formulas.
class GoldenCrossEntropy : public ::testing::Test {
 protected:
  Tensor z = from_values({2, 0.5, -1, 0, 1, 0, 1, -1, 3}, {3, 3}, DType::f64);
  Tensor target = from_values({0, -100, 1}, {3}, DType::i64);
  Tensor loss(Reduction reduction, double smoothing = 0) {
    return cross_entropy(z, target, {}, reduction, -100, smoothing);
  }
};

TEST_F(GoldenCrossEntropy, Reductions) {
  expect_near(loss(Reduction::none), {0.24131129665715711, 0, 4.1429316284999}, 1e-13);
  expect_near(loss(Reduction::mean), {2.1921214625785286}, 1e-13);
  expect_near(loss(Reduction::sum), {4.384242925157057}, 1e-13);
}

TEST_F(GoldenCrossEntropy, LabelSmoothing) {
  expect_near(loss(Reduction::none, 0.1), {0.39131129665715714, 0, 3.9429316284999003}, 1e-13);
  expect_near(loss(Reduction::mean, 0.1), {2.1671214625785287}, 1e-13);
}

TEST_F(GoldenCrossEntropy, F32) {
  z = to(z, DType::f32);
  expect_near(loss(Reduction::mean), {2.1921214625785286}, 1e-6);
  expect_near(loss(Reduction::mean, 0.1), {2.1671214625785287}, 1e-6);
}

// Mean, no weights, no smoothing: (softmax(z) - onehot) / count, 0 where ignored.
TEST_F(GoldenCrossEntropy, Gradient) {
  z.set_requires_grad(true);
  loss(Reduction::mean).backward();
  std::vector<double> expected = softmax(z.detach(), 1).to_vector();
  expected[0] -= 1;
  expected[7] -= 1;
  for (double& v : expected) v /= 2;
  expected[3] = expected[4] = expected[5] = 0;
  expect_near(z.grad(), expected, 1e-14);
}

TEST_F(GoldenCrossEntropy, AllIgnoredIsNaNAndHasNoGradient) {
  z.set_requires_grad(true);
  target = from_values({-100, -100, -100}, {3}, DType::i64);
  EXPECT_TRUE(std::isnan(loss(Reduction::mean).item()));
  EXPECT_TRUE(std::isnan(loss(Reduction::mean, 0.1).item()));
  EXPECT_EQ(loss(Reduction::sum).item(), 0);
  loss(Reduction::mean).backward();
  EXPECT_EQ(z.grad().to_vector(), std::vector<double>(9, 0));
}

TEST_F(GoldenCrossEntropy, ProbabilityTargets) {
  // One-hot probabilities are class targets.
  const Tensor onehot = from_values({1, 0, 0, 0, 1, 0, 0, 1, 0}, {3, 3}, DType::f64);
  const Tensor classes = from_values({0, 1, 1}, {3}, DType::i64);
  for (const double smoothing : {0.0, 0.3}) {
    for (const Reduction r : {Reduction::none, Reduction::mean, Reduction::sum}) {
      expect_near(cross_entropy(z, onehot, {}, r, -100, smoothing),
                  cross_entropy(z, classes, {}, r, -100, smoothing).to_vector(), 1e-13);
    }
  }
  // With weights the mean divides by rows, not by weights.
  const Tensor weight = from_values({1, 2, 3}, {3}, DType::f64);
  const double sum = cross_entropy(z, onehot, weight, Reduction::sum).item();
  EXPECT_NEAR(cross_entropy(z, onehot, weight).item(), sum / 3, 1e-13);
  EXPECT_NEAR(cross_entropy(z, classes, weight).item(), sum / 5, 1e-13);
}

TEST(CrossEntropy, LargeLogitsStayFinite) {
  const Tensor z = from_values({1e4, -1e4, 0, 1e4}, {2, 2});
  expect_near(cross_entropy(z, from_values({0, 0}, {2}, DType::i64), {}, Reduction::none), {0, 1e4},
              1e-3);
}

TEST(CrossEntropy, ManyRowsAndThreads) {
  const Tensor z = numbers({70000, 10});
  std::vector<double> classes;
  for (int i = 0; i < 70000; ++i) classes.push_back(i % 11 == 10 ? -100 : i % 11);
  const Tensor target = from_values(classes, {70000}, DType::i64);
  const Tensor in[] = {z, target, Tensor()};
  const Attr attrs[] = {int64_t{1}, int64_t{-100}, 0.0};
  const int before = num_threads();
  set_num_threads(1);
  const Outputs one = run_op(kCrossEntropyLoss, in, attrs);
  set_num_threads(4);
  const Outputs four = run_op(kCrossEntropyLoss, in, attrs);
  set_num_threads(before);
  EXPECT_EQ(one[0].item(), four[0].item());
  EXPECT_NEAR(one[0].item(), reference_results(kCrossEntropyLoss, in, attrs, one.span())[0].item(),
              1e-5);
}

TEST(CrossEntropy, Messages) {
  const Tensor z = ones({2, 3});
  const Tensor good = zeros({2}, DType::i64);
  EXPECT_ERROR(cross_entropy(z, full({2}, 3, DType::i64)),
               "[aten::cross_entropy_loss_forward] expected class targets in [0, 3) or the "
               "ignore_index -100, got 3");
  EXPECT_ERROR(cross_entropy(z, full({2}, -1, DType::i64)),
               "[aten::cross_entropy_loss_forward] expected class targets in [0, 3) or the "
               "ignore_index -100, got -1");
  EXPECT_ERROR(cross_entropy(z, zeros({3}, DType::i64)),
               "[aten::cross_entropy_loss] expected scores [n, classes] with i64 targets [n], or "
               "[classes] with one target, got f32[2, 3] and i64[3]");
  EXPECT_ERROR(cross_entropy(z, zeros({2})),
               "[aten::cross_entropy_loss] expected scores [n, classes] with i64 targets [n], or "
               "[classes] with one target, got f32[2, 3] and f32[2]");
  EXPECT_ERROR(cross_entropy(z, good, ones({2})),
               "[aten::cross_entropy_loss] expected one weight per class, [3], got f32[2]");
  EXPECT_ERROR(cross_entropy(z, good, {}, Reduction::mean, -100, 1.5),
               "[aten::cross_entropy_loss] expected a label_smoothing in [0, 1], got 1.500000");
  EXPECT_ERROR(
      cross_entropy(z, z, {}, Reduction::mean, 1),
      "[aten::cross_entropy_loss] expected no ignore_index with probability targets, got 1");
  EXPECT_ERROR(nll_loss(z, good, {}, static_cast<Reduction>(3)),
               "[aten::nll_loss_forward] expected reduction 0 (none), 1 (mean) or 2 (sum), got 3");
  Tensor weight = ones({3});
  Tensor scores = ones({2, 3});
  weight.set_requires_grad(true);
  scores.set_requires_grad(true);
  EXPECT_ERROR(nll_loss(scores, good, weight).backward(),
               "[aten::nll_loss_forward] expected a class weight that requires no gradient, got "
               "f32[3]");
}

TEST(MseLoss, KnownValues) {
  const Tensor x = from_values({1, 2, 3, 4}, {2, 2});
  const Tensor y = from_values({0, 2, 5, 1}, {2, 2});
  expect_near(mse_loss(x, y, Reduction::none), {1, 0, 4, 9}, 0);
  EXPECT_EQ(mse_loss(x, y).item(), 3.5);
  EXPECT_EQ(mse_loss(x, y, Reduction::sum).item(), 14);
  EXPECT_TRUE(std::isnan(mse_loss(zeros({0}), zeros({0})).item()));
  // The target gets the negated gradient.
  Tensor a = to(x, DType::f64);
  Tensor b = to(y, DType::f64);
  a.set_requires_grad(true);
  b.set_requires_grad(true);
  mse_loss(a, b).backward();
  expect_near(a.grad(), {0.5, 0, -1, 1.5}, 1e-15);
  expect_near(b.grad(), {-0.5, 0, 1, -1.5}, 1e-15);
}

TEST(MseLoss, LargerAndStrided) {
  const Tensor a = numbers({130, 257});
  const Tensor wide = numbers({3, 9000});
  const Tensor pairs[][2] = {{a, mul(a, 0.5)},
                             {transpose(a, 0, 1), numbers({257, 130})},
                             {a, expand(numbers({257}), {130, 257})},
                             {wide, to(wide, DType::bf16)}};
  for (const auto& pair : pairs) {
    for (const int64_t reduction : {0, 1, 2}) {
      const Attr attrs[] = {reduction};
      const Outputs out = run_op(kMseLoss, pair, attrs);
      const Tensor expected = reference_results(kMseLoss, pair, attrs, out.span())[0];
      EXPECT_EQ(difference(out[0], expected, {2e-6, 1e-5}), "") << describe(pair, attrs);

      const Tensor in[] = {reduction == 0 ? mul(out[0], 2.0) : full({}, 0.75), pair[0], pair[1]};
      const Outputs back = run_op(kMseLossBackward, in, attrs);
      const Tensor back_expected = reference_results(kMseLossBackward, in, attrs, back.span())[0];
      EXPECT_EQ(difference(back[0], back_expected, {2e-6, 1e-5}), "") << describe(in, attrs);
    }
  }
}

// Broadcast it would be n^2 losses, whose mean teaches nothing.
TEST(MseLoss, AColumnAndARowAreRefused) {
  const std::string expected = " expected a target of the input's shape [4, 1], got f32[4]";
  const Tensor x = ones({4, 1});
  const Tensor y = ones({4});
  EXPECT_ERROR(mse_loss(x, y), "[aten::mse_loss]" + expected);
  EXPECT_ERROR(l1_loss(x, y), "[aten::l1_loss]" + expected);
  EXPECT_ERROR(smooth_l1_loss(x, y), "[aten::smooth_l1_loss]" + expected);
  EXPECT_ERROR(huber_loss(x, y), "[aten::huber_loss]" + expected);
  EXPECT_ERROR(binary_cross_entropy(x, y), "[aten::binary_cross_entropy]" + expected);
  EXPECT_ERROR(binary_cross_entropy_with_logits(x, y),
               "[aten::binary_cross_entropy_with_logits]" + expected);
  EXPECT_ERROR(mse_loss(ones({4}), ones({})),
               "[aten::mse_loss] expected a target of the input's shape [4], got f32[]");
}

TEST(MseLoss, Messages) {
  EXPECT_ERROR(mse_loss(ones({2}), ones({3})),
               "[aten::mse_loss] expected a target of the input's shape [2], got f32[3]");
  EXPECT_ERROR(mse_loss(ones({2}, DType::i64), ones({2}, DType::i64)),
               "[aten::mse_loss] expected a floating tensor, got i64[2] and i64[2]");
}

TEST(Dropout, KeepsOneMinusPAndScales) {
  manual_seed(3);
  const std::vector<double> y = dropout(ones({100000}), 0.25).to_vector();
  double kept = 0;
  for (const double v : y) {
    EXPECT_TRUE(v == 0 || std::abs(v - 1 / 0.75) < 1e-6) << v;
    kept += v != 0 ? 1 : 0;
  }
  // Binomial: standard deviation 137.
  EXPECT_NEAR(kept, 75000, 700);
}

TEST(Dropout, SeedsRepeatAndAdvance) {
  const Tensor x = ones({1000});
  manual_seed(5);
  const auto first = dropout(x).to_vector();
  const auto second = dropout(x).to_vector();
  manual_seed(5);
  EXPECT_EQ(dropout(x).to_vector(), first);
  EXPECT_NE(second, first);
}

TEST(Dropout, Ends) {
  const Tensor x = numbers({7, 5});
  EXPECT_TRUE(dropout(x, 0.5, false).is_same(x));
  EXPECT_TRUE(dropout(x, 0).is_same(x));
  for (const double v : dropout(x, 1).to_vector()) EXPECT_EQ(v, 0);
  EXPECT_ERROR(dropout(x, 1.5), "[aten::dropout] expected a probability in [0, 1], got 1.500000");
  EXPECT_ERROR(dropout(x, std::nan("")),
               "[aten::dropout] expected a probability in [0, 1], got nan");
}

TEST(Dropout, GradientFollowsTheMask) {
  Tensor x = ones({64});
  x.set_requires_grad(true);
  const Tensor y = dropout(x, 0.5);
  sum(y).backward();
  EXPECT_EQ(x.grad().to_vector(), y.to_vector());
}

}  // namespace epilogue::test::losses_test
