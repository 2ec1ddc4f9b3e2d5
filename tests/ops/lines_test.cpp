// SPDX-License-Identifier: Apache-2.0
// max, min, argmax, argmin, var, std and cumsum beyond what the op table checks: PyTorch's values
// at the edges, and sizes that threads share.
#include "base/cpu_features.h"
#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "epilogue/runtime.h"
#include "errors/message_of.h"
#include "ops/ops.h"
#include "ops/run_op.h"
#include "ops/table_support.h"
#include "support/test.h"

namespace epilogue::test::lines_test {

using Values = std::vector<double>;

TEST(Extrema, NanWinsAndTheFirstOfEqualOnesCounts) {
  const Tensor x = from_values({{1, 5, 5}, {NAN, 2, NAN}});
  const auto [largest, at] = max(x, 1);
  EXPECT_EQ(at.to_vector(), (Values{1, 0}));
  EXPECT_EQ(largest.to_vector()[0], 5);
  EXPECT_TRUE(std::isnan(largest.to_vector()[1]));
  EXPECT_EQ(min(x, 1).indices.to_vector(), (Values{0, 0}));
  EXPECT_EQ(argmax(x).item(), 3);
  EXPECT_EQ(argmin(x, 0).to_vector(), (Values{1, 1, 1}));
  EXPECT_TRUE(std::isnan(max(x).item()));
  EXPECT_EQ(argmax(zeros({2, 3})).item(), 0);
  EXPECT_EQ(argmax(zeros({2, 3}), {}, true).sizes(), (Dims{1, 1}));
  EXPECT_EQ(max(arange(5)).item(), 4);
  EXPECT_EQ(max(arange(5)).dtype(), DType::i64);
  EXPECT_EQ(max(from_values({1, 4}), from_values({3, 2})).to_vector(), (Values{3, 4}));
}

TEST(Extrema, GradientsGoToWhoWon) {
  Tensor w = from_values({{1, 3, 3}, {2, 2, 0}});
  w.set_requires_grad(true);
  max(w).backward();
  EXPECT_EQ(w.grad().to_vector(), (Values{0, 0.5, 0.5, 0, 0, 0}));
  w.set_grad({});
  sum(max(w, 0).values).backward();
  EXPECT_EQ(w.grad().to_vector(), (Values{0, 1, 1, 1, 0, 0}));
  EXPECT_FALSE(max(w, 0).indices.requires_grad());
}

TEST(Extrema, Messages) {
  EXPECT_ERROR(max(zeros({0})), "[aten::max] expected at least one element, got f32[0]");
  EXPECT_ERROR(argmin(zeros({3, 0}), 1),
               "[aten::argmin] expected elements in dimension 1, got f32[3, 0]");
  EXPECT_ERROR(min(zeros({3}), 1), "[aten::min] expected a dimension in [-1, 0], got 1");
}

TEST(Variance, AsPyTorch) {
  const Tensor x = from_values({1, 2, 4, 9});
  EXPECT_FLOAT_EQ(static_cast<float>(var(x).item()), 12.6666669846F);
  EXPECT_FLOAT_EQ(static_cast<float>(stddev(x, {}, 0).item()), 3.0822069645F);
  EXPECT_TRUE(std::isnan(var(ones({1})).item()));
  EXPECT_TRUE(std::isnan(var(zeros({0})).item()));
  // A mean far away must not swallow the deviations.
  EXPECT_NEAR(var(add(randn({100000}), 1000)).item(), 1, 0.02);
  Tensor constant = full({3}, 2);
  constant.set_requires_grad(true);
  stddev(constant).backward();
  EXPECT_EQ(constant.grad().to_vector(), (Values{0, 0, 0}));
  EXPECT_ERROR(var(arange(3)), "[aten::var] expected a floating tensor, got i64[3]");
}

TEST(Cumsum, IntegersSumToI64) {
  EXPECT_EQ(cumsum(from_values({1, 2, 3}, DType::u8), 0).dtype(), DType::i64);
  EXPECT_EQ(cumsum(from_values({1, 1, 0}, DType::boolean), 0).to_vector(), (Values{1, 2, 2}));
  EXPECT_EQ(cumsum(full({3}, 100, DType::bf16), 0, DType::f32).to_vector(),
            (Values{100, 200, 300}));
}

struct Case {
  const OpDef* op;
  std::vector<Attr> attrs;
};

// Shapes whose rows or pieces threads share, contiguous and not: the reference's results, and the
// same bits on one thread as on four.
TEST(Lines, LargeOnesAreTheReferencesOnAnyThread) {
  const Tensor wide = numbers({5, 30011});
  const Tensor tall = numbers({20011, 7});
  const Tensor cube = numbers({17, 129, 65});
  const Tensor inputs[] = {wide, transpose(wide, 0, 1), tall, transpose(cube, 0, 2),
                           to(cube, DType::bf16)};
  const std::vector<Attr> whole = {Attr(), false};
  const Case cases[] = {{&kMax, {int64_t{0}, false}},
                        {&kMax, {int64_t{1}, false}},
                        {&kMin, {int64_t{-1}, true}},
                        {&kMin, whole},
                        {&kArgmax, whole},
                        {&kArgmin, {int64_t{0}, false}},
                        {&kVar, {Dims{0}, 1.0, false}},
                        {&kVar, {Dims{}, 1.0, false}},
                        {&kStd, {Dims{-1}, 0.0, true}},
                        {&kCumsum, {int64_t{0}, Attr()}},
                        {&kCumsumBackward, {int64_t{1}}}};
  for (const Case& c : cases)
    for (const Tensor& x : inputs) {
      const Tensor in[] = {x};
      const std::string what = std::string(c.op->name) + " " + describe(in, c.attrs);
      std::vector<Values> seen;
      for (const int threads : {1, 4}) {
        const ThreadScope scope(threads);
        const Outputs out = run_op(*c.op, in, c.attrs);
        const std::vector<Tensor> expected = reference_results(*c.op, in, c.attrs, out.span());
        for (size_t i = 0; i < expected.size(); ++i)
          EXPECT_EQ(difference(out[i], expected[i], tolerance_for(*c.op, in, expected[i])), "")
              << what;
        seen.push_back(out[0].to_vector());
      }
      EXPECT_EQ(seen[0], seen[1]) << what;
    }
}

}  // namespace epilogue::test::lines_test
