// SPDX-License-Identifier: Apache-2.0
// Reductions in programs: a graph before, its text after.
#include "pass_testing.h"

namespace epilogue::testing {
namespace {

std::string fused(const graph::Function& f, std::vector<Tensor> in) {
  return after(capture(f, std::move(in)), "fuse_pointwise").text;
}

TEST(FusePointwise, SoftmaxJoinsWhatMakesItsRows) {
  const std::string text =
      fused([](std::span<const Tensor> in) { return one(softmax(in[0] + in[1], -1)); },
            {zeros({3, 4}), zeros({4})});
  EXPECT_EQ(text,
            "%0 = input f32[3, 4]\n"
            "%1 = input f32[4]\n"
            "%3 = pointwise(%0, %1): v2 = add(v0, v1); v3 = row_max(v2); v4 = sub(v2, v3); "
            "v5 = exp(v4); v6 = row_sum(v5); v7 = div(1.0, v6); v8 = mul(v5, v7); store v8 -> "
            "f32[3, 4]\n"
            "return %3\n");
}

// Programs of a GPU are generated for elements.
TEST(FusePointwise, ProgramsOfADeviceReduceNothing) {
  Graph g = capture([](std::span<const Tensor> in) { return one(softmax(in[0] + in[1], -1)); },
                    {zeros({3, 4}), zeros({4})});
  g.device = {DeviceType::cuda, 0};
  g.capabilities = {};
  const std::string text = after(g, "fuse_pointwise").text;
  EXPECT_NE(text.find("aten::_softmax("), std::string::npos) << text;
  EXPECT_EQ(text.find("row_max"), std::string::npos) << text;
}

TEST(FusePointwise, AReductionAloneIsTheOp) {
  EXPECT_NE(
      fused([](std::span<const Tensor> in) { return one(softmax(in[0], -1)); }, {zeros({3, 4})})
          .find("aten::_softmax("),
      std::string::npos);
  EXPECT_NE(
      fused([](std::span<const Tensor> in) { return one(softmax(neg(in[0]), 0)); }, {zeros({3, 4})})
          .find("aten::_softmax("),
      std::string::npos)
      << "down the columns";
}

TEST(FusePointwise, RowsNumbersJoinElements) {
  const std::string text = fused(
      [](std::span<const Tensor> in) {
        const Tensor e = exp(in[0]);
        return one(div(e, sum(e, {-1}, true) + 1.0));
      },
      {zeros({3, 4})});
  EXPECT_NE(text.find("pointwise(%0): v1 = exp(v0); v2 = row_sum(v1); v3 = add(v2, 1.0); "
                      "v4 = div(v1, v3); store v4"),
            std::string::npos)
      << text;
}

// [4] beside [4, 4] is one number per column.
TEST(FusePointwise, SumsWithoutTheirDimensionAreNoRowsNumbers) {
  const std::string text = fused(
      [](std::span<const Tensor> in) { return one(in[0] * sum(in[0], {-1})); }, {zeros({4, 4})});
  EXPECT_NE(text.find("aten::sum("), std::string::npos) << text;
  EXPECT_NE(text.find("aten::mul("), std::string::npos) << text;
}

TEST(FusePointwise, AProgramMayEndInAReduction) {
  const std::string text =
      fused([](std::span<const Tensor> in) { return one(mean(in[0] * in[1], {-1})); },
            {zeros({2, 3, 4}), zeros({2, 3, 4})});
  EXPECT_NE(text.find("v2 = mul(v0, v1); v3 = row_mean(v2); store v3 -> f32[2, 3]"),
            std::string::npos)
      << text;
}

// What is summed is stored for others too: it is not read again.
TEST(FusePointwise, ColumnSumsStandBesideWhatTheySum) {
  const Graph g = capture(
      [](std::span<const Tensor> in) {
        const Tensor d = run_op(kGeluBackward, {in[0], in[1]}, {int64_t{1}});
        return std::vector<Tensor>{d, sum(d, {0, 1}, true)};
      },
      {zeros({2, 3, 4}), zeros({2, 3, 4})});
  const After a = after(g, "fuse_pointwise");
  EXPECT_NE(a.text.find("v2 = gelu_tanh_backward(v0, v1); v3 = column_sum(v2); store v2 v3 -> "
                        "f32[2, 3, 4], f32[1, 1, 4]"),
            std::string::npos)
      << a.text;
  ASSERT_EQ(a.notes.size(), 1U);
  EXPECT_EQ(a.notes[0].bytes_saved, 2 * 3 * 4 * 4) << "one read";
}

TEST(FusePointwise, NormsJoinResidualsUnlessAProductTakesThem) {
  const Tensor g = ones({4});
  const Tensor w = zeros({6, 4});
  const auto normed = [g](std::span<const Tensor> in) {
    return layer_norm(in[0] + in[1], {4}, g, g);
  };
  const std::string alone = fused([&](std::span<const Tensor> in) { return one(normed(in)); },
                                  {zeros({3, 4}), zeros({3, 4})});
  EXPECT_EQ(count_of(alone, " = pointwise("), 1U) << alone;
  EXPECT_EQ(count_of(alone, "row_mean("), 2U) << alone;
  EXPECT_EQ(count_of(alone, "aten::"), 0U) << alone;
  const std::string before_product =
      fused([&](std::span<const Tensor> in) { return one(linear(normed(in), w)); },
            {zeros({3, 4}), zeros({3, 4})});
  EXPECT_EQ(count_of(before_product, "norm: layer("), 1U) << before_product;
  EXPECT_EQ(count_of(before_product, "aten::add("), 1U) << before_product;
}

// The exponential that two branches compute.
TEST(FusePointwise, StepsThatAreThereAreNotRepeated) {
  const std::string text = fused(
      [](std::span<const Tensor> in) {
        const Tensor e = neg(in[0]);
        return one(exp(e) * (exp(e) + 1.0));
      },
      {zeros({3, 4})});
  EXPECT_NE(text.find("pointwise(%0): v1 = neg(v0); v2 = exp(v1); v3 = add(v2, 1.0); "
                      "v4 = mul(v2, v3); store v4"),
            std::string::npos)
      << text;
}

TEST(FusePointwise, NormsOverSeveralDimensionsAreTheOp) {
  const std::string text = fused(
      [](std::span<const Tensor> in) {
        return one(rms_norm(neg(in[0]), {3, 4}, Tensor()));
      },
      {zeros({2, 3, 4})});
  EXPECT_NE(text.find("aten::_fused_rms_norm("), std::string::npos) << text;
}

// dh = dy w^T g, read by others, and the gradient of its bias.
TEST(FuseEpilogues, TheGradientOfABiasStandsBesideThatOfTheRows) {
  const Tensor w = zeros({6, 4});
  const Graph g = capture(
      [=](std::span<const Tensor> in) {
        const Tensor dh = matmul(in[0], t(w)) * in[1];
        return std::vector<Tensor>{dh, sum(dh, {0}, true)};
      },
      {zeros({3, 4}), zeros({3, 6})});
  const std::string text = after(g, "fuse_epilogues").text;
  EXPECT_NE(text.find("v2 = mul(v0, v1); v3 = column_sum(v2); store v2 v3, the last %"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("aten::"), std::string::npos) << text;
}

TEST(FuseEpilogues, NotTheSumAlone) {
  const Tensor w = zeros({6, 4});
  for (const int64_t rows : {1, 3}) {
    const Graph g = capture(
        [=](std::span<const Tensor> in) { return one(sum(matmul(in[0], t(w)), {0}, true)); },
        {zeros({rows, 4})});
    EXPECT_EQ(reason_of(after(g, "fuse_epilogues"), "fuse_epilogues"),
              "only the sum of its result is read")
        << rows;
  }
}

TEST(FuseEpilogues, WhatNeedsWholeRowsStaysBehindTheProduct) {
  const Tensor w = zeros({6, 4});
  const Graph g =
      capture([=](std::span<const Tensor> in) { return one(softmax(matmul(in[0], t(w)), -1)); },
              {zeros({3, 4})});
  EXPECT_NE(after(g, "fuse_pointwise").text.find("aten::_softmax("), std::string::npos);
}

// One row: the sum over rows has the rows' sizes, and is still none of them.
TEST(FuseEpilogues, WhatReadsASumOverOneRowStaysBehindIt) {
  const Tensor w = zeros({6, 4});
  const Graph g = capture(
      [=](std::span<const Tensor> in) {
        const Tensor dh = matmul(in[0], t(w));
        return std::vector<Tensor>{dh, neg(sum(dh, {0}, true))};
      },
      {zeros({1, 4})});
  const std::string text = after(g, "drop_dead").text;
  EXPECT_NE(text.find("aten::neg("), std::string::npos) << text;
  EXPECT_NE(text.find("column_sum("), std::string::npos) << text;
}

}  // namespace
}  // namespace epilogue::testing
