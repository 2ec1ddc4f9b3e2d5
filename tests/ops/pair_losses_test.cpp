// SPDX-License-Identifier: Apache-2.0
// l1, smooth L1, Huber and binary cross entropy: PyTorch's values and gradients, also at the edges.
#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "errors/message_of.h"
#include "ops/ops.h"
#include "ops/run_op.h"
#include "ops/table_support.h"
#include "support/test.h"

namespace epilogue::test::pair_losses_test {

using Values = std::vector<double>;

Tensor doubles(std::initializer_list<double> values) {
  return from_values(values, Dims(static_cast<int64_t>(values.size())), DType::f64);
}

// The losses of five pairs, and the gradient of their mean.
template <class Loss>
void expect_loss(Loss&& loss, const Values& each, const Values& gradient) {
  Tensor x = doubles({-2, -0.3, 0, 0.7, 3});
  x.set_requires_grad(true);
  const Tensor t = doubles({0.5, -0.1, 0, 0.5, -1});
  expect_near(loss(x, t, Reduction::none), each, 1e-15);
  expect_near(loss(x, t, Reduction::sum), {each[0] + each[1] + each[2] + each[3] + each[4]}, 1e-14);
  loss(x, t, Reduction::mean).backward();
  expect_near(x.grad(), gradient, 1e-15);
}

TEST(DifferenceLosses, AsPyTorch) {
  expect_loss([](auto& x, auto& t, Reduction r) { return l1_loss(x, t, r); }, {2.5, 0.2, 0, 0.2, 4},
              {-0.2, -0.2, 0, 0.2, 0.2});
  expect_loss([](auto& x, auto& t, Reduction r) { return smooth_l1_loss(x, t, r); },
              {2, 0.02, 0, 0.02, 3.5}, {-0.2, -0.04, 0, 0.04, 0.2});
  expect_loss([](auto& x, auto& t, Reduction r) { return smooth_l1_loss(x, t, r, 0.5); },
              {2.25, 0.04, 0, 0.04, 3.75}, {-0.2, -0.08, 0, 0.08, 0.2});
  expect_loss([](auto& x, auto& t, Reduction r) { return smooth_l1_loss(x, t, r, 0); },
              {2.5, 0.2, 0, 0.2, 4}, {-0.2, -0.2, 0, 0.2, 0.2});
  expect_loss([](auto& x, auto& t, Reduction r) { return huber_loss(x, t, r); },
              {2, 0.02, 0, 0.02, 3.5}, {-0.2, -0.04, 0, 0.04, 0.2});
  expect_loss([](auto& x, auto& t, Reduction r) { return huber_loss(x, t, r, 0.3); },
              {0.705, 0.02, 0, 0.02, 1.155}, {-0.06, -0.04, 0, 0.04, 0.06});
}

TEST(BinaryCrossEntropy, IsFiniteAtZeroAndOne) {
  Tensor p = doubles({0, 1e-3, 0.3, 0.9, 1});
  p.set_requires_grad(true);
  const Tensor y = doubles({1, 0, 0.6, 1, 1});
  expect_near(binary_cross_entropy(p, y, {}, Reduction::none),
              {100, 0.0010005003335835335, 0.8650536601710546, 0.10536051565782628, 0}, 1e-15);
  binary_cross_entropy(p, y).backward();
  const Values g = p.grad().to_vector();
  EXPECT_NEAR(g[0] / -2e11, 1, 1e-8);
  EXPECT_NEAR(g[1], 0.20020020020020018, 1e-15);
  EXPECT_NEAR(g[2], -0.2857142857142857, 1e-15);
  EXPECT_NEAR(g[3], -0.22222222222222224, 1e-15);
  EXPECT_EQ(g[4], 0);
}

TEST(BinaryCrossEntropy, OfLogitsOverflowsNowhere) {
  Tensor z = doubles({-1000, -2, 0, 3, 500});
  z.set_requires_grad(true);
  const Tensor y = doubles({1, 0, 0.6, 1, 0});
  expect_near(binary_cross_entropy_with_logits(z, y, {}, {}, Reduction::none),
              {1000, 0.1269280110429727, 0.6931471805599453, 0.04858735157374206, 500}, 1e-13);
  const Tensor three = full({1}, 3, DType::f64);
  expect_near(binary_cross_entropy_with_logits(z, y, {}, three, Reduction::none),
              {3000, 0.1269280110429727, 1.5249237972318797, 0.1457620547212262, 500}, 1e-13);
  binary_cross_entropy_with_logits(z, y, {}, three).backward();
  expect_near(z.grad(), {-0.6, 0.0238405844, -0.14, -0.0284555239, 0.2}, 1e-10);
}

TEST(BinaryCrossEntropy, LargeAndStridedOnesAreTheReferences) {
  const Tensor x = uniform({130, 257}, 0.01, 0.99);
  const Tensor t = uniform({130, 257}, 0, 1);
  const Tensor weights = uniform({257}, 0.5, 2);
  const Tensor turned = transpose(uniform({257, 130}, 0.01, 0.99), 0, 1);
  for (const std::vector<Tensor>& in :
       {std::vector<Tensor>{x, t, {}}, {turned, t, {}}, {x, t, weights}, {turned, t, weights}})
    for (const int64_t reduction : {0, 1, 2}) {
      const Attr attrs[] = {reduction};
      const Outputs out = run_op(kBinaryCrossEntropy, in, attrs);
      const Tensor expected = reference_results(kBinaryCrossEntropy, in, attrs, out.span())[0];
      EXPECT_EQ(difference(out[0], expected, {2e-6, 1e-5}), "") << describe(in, attrs);
    }
}

TEST(PairLosses, Messages) {
  const Tensor x = ones({2});
  EXPECT_ERROR(huber_loss(x, x, Reduction::mean, 0),
               "[aten::huber_loss] expected a delta above 0, got 0.000000");
  EXPECT_ERROR(smooth_l1_loss(x, x, Reduction::mean, -1),
               "[aten::smooth_l1_loss] expected a beta of 0 or more, got -1.000000");
  EXPECT_ERROR(l1_loss(arange(2), arange(2)),
               "[aten::l1_loss] expected a floating tensor, got i64[2] and i64[2]");
  EXPECT_ERROR(binary_cross_entropy(x * 1.5, x),
               "[aten::binary_cross_entropy] expected probabilities in [0, 1], got 1.500000");
  EXPECT_ERROR(binary_cross_entropy(x, x, ones({3})),
               "[aten::binary_cross_entropy] expected shapes that broadcast, got [2] and [3]");
}

}  // namespace epilogue::test::pair_losses_test
