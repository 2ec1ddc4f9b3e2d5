// SPDX-License-Identifier: Apache-2.0
// Each pass: a graph before, its text after.
#include "pass_testing.h"

namespace epilogue::testing {
namespace {

Graph gated_mlp() {
  const Tensor gate = zeros({6, 4});
  const Tensor up = zeros({6, 4});
  const Tensor down = zeros({4, 6});
  return capture(
      [=](std::span<const Tensor> in) {
        // Named, since C++ may evaluate operands in any order.
        const Tensor activated = gelu(linear(in[0], gate), Gelu::tanh);
        return one(linear(activated * linear(in[0], up), down));
      },
      {zeros({2, 3, 4})});
}

TEST(FoldViews, ProductsTakeRowsAsTheyLie) {
  const Tensor w = zeros({6, 4});
  const After a = after(capture([w](std::span<const Tensor> in) { return one(linear(in[0], w)); },
                                {zeros({2, 3, 4})}),
                        "fold_views");
  EXPECT_EQ(a.text,
            "%0 = input f32[2, 3, 4]\n"
            "%6 = parameter f32[6, 4]\n"
            "%5 = chain(%0) -> f32[2, 3, 6]\n"
            "    product with %6: store v0\n"
            "return %5\n");
}

TEST(FoldViews, KeepsWhatOthersRead) {
  const Tensor w = zeros({6, 4});
  const After a = after(capture(
                            [w](std::span<const Tensor> in) {
                              const Tensor rows = view(in[0], {6, 4});
                              return std::vector<Tensor>{matmul(rows, t(w)), neg(rows)};
                            },
                            {zeros({2, 3, 4})}),
                        "fold_views");
  EXPECT_NE(a.text.find("aten::view(%0; [6, 4]) -> f32[6, 4]"), std::string::npos) << a.text;
  EXPECT_NE(a.text.find("-> f32[6, 6]\n    product"), std::string::npos) << a.text;
}

TEST(FoldViews, SaysWhyAMatrixIsNoWeight) {
  const Graph g =
      capture([](std::span<const Tensor> in) { return one(matmul(in[0], relu(in[1]))); },
              {zeros({2, 3}), zeros({3, 4})});
  EXPECT_EQ(reason_of(after(g, "fold_views"), "fold_views"),
            "the second matrix is computed, not a parameter");
}

TEST(FoldConstants, NumbersAreComputedOnce) {
  const Graph g =
      capture([](std::span<const Tensor> in) { return one(in[0] * (scalar(2.0) + scalar(3.0))); },
              {zeros({4})});
  EXPECT_NE(after(g, "fold_constants").text.find("constant 5\n"), std::string::npos);
}

TEST(FuseBias, AddmmIsOneProduct) {
  const Tensor w = zeros({6, 4});
  const Tensor b = zeros({6});
  const Graph g = capture([=](std::span<const Tensor> in) { return one(linear(in[0], w, b)); },
                          {zeros({2, 3, 4})});
  const std::string text = after(g, "fuse_bias").text;
  EXPECT_NE(text.find("-> f32[2, 3, 6]\n    product with"), std::string::npos) << text;
  EXPECT_NE(text.find("v2 = add(v0, v1); store v2"), std::string::npos) << text;
  EXPECT_EQ(text.find("aten::"), std::string::npos) << text;
}

TEST(MergeGemms, GateAndUpAreOneProduct) {
  const std::string text = after(gated_mlp(), "merge_gemms").text;
  EXPECT_NE(text.find("product with %18, %19: v2 = gelu_tanh(v0); v3 = mul(v2, v1); store v3"),
            std::string::npos)
      << text;
}

TEST(MergeGemms, NotWhereTheRowsDiffer) {
  const Tensor w1 = zeros({6, 4});
  const Tensor w2 = zeros({6, 4});
  const Graph g = capture(
      [=](std::span<const Tensor> in) { return one(linear(in[0], w1) * linear(in[1], w2)); },
      {zeros({3, 4}), zeros({3, 4})});
  const After a = after(g, "fuse_epilogues");
  EXPECT_EQ(reason_of(a, "merge_gemms"), "the products read different rows");
  EXPECT_NE(a.text.find("operands %"), std::string::npos) << "one product joins as an operand";
}

TEST(MergeGemms, WhatOthersReadOfABranchIsStored) {
  const Tensor w1 = zeros({6, 4});
  const Tensor w2 = zeros({6, 4});
  const Graph g = capture(
      [=](std::span<const Tensor> in) {
        const Tensor gate = linear(in[0], w1);
        return std::vector<Tensor>{gate * linear(in[0], w2), gate};
      },
      {zeros({3, 4})});
  const std::string text = after(g, "merge_gemms").text;
  EXPECT_NE(text.find("v2 = mul(v0, v1); store v2 v0, the last %"), std::string::npos) << text;
  EXPECT_EQ(text.find("aten::"), std::string::npos) << text;
}

TEST(FuseEpilogues, ActivationScaleAndResidualJoinTheProduct) {
  const Tensor w = zeros({4, 4});
  const Graph g =
      capture([w](std::span<const Tensor> in) { return one(in[0] - silu(linear(in[0], w)) * 2.0); },
              {zeros({3, 4})});
  const std::string text = after(g, "fuse_epilogues").text;
  EXPECT_NE(text.find("operands %0: v2 = silu(v0); v3 = mul(v2, 2.0); v4 = sub(v1, v3); store v4"),
            std::string::npos)
      << text;
}

TEST(FuseEpilogues, AProductThatIsAResultTooIsStored) {
  const Tensor w = zeros({4, 4});
  const Graph g = capture(
      [w](std::span<const Tensor> in) {
        const Tensor y = linear(in[0], w);
        return std::vector<Tensor>{y, relu(y)};
      },
      {zeros({3, 4})});
  EXPECT_NE(after(g, "fuse_epilogues").text.find("v1 = relu(v0); store v0 v1, the last %"),
            std::string::npos)
      << after(g, "fuse_epilogues").text;
}

TEST(FuseEpilogues, ChainsOfADeviceGiveOneResult) {
  const Tensor w1 = zeros({4, 4});
  const Tensor w2 = zeros({4, 4});
  Graph stored = capture(
      [=](std::span<const Tensor> in) {
        const Tensor y = linear(in[0], w1);
        return std::vector<Tensor>{y, relu(y)};
      },
      {zeros({3, 4})});
  stored.device = {DeviceType::cuda, 0};
  stored.capabilities = {};
  const After a = after(stored, "form_row_chains");
  EXPECT_EQ(reason_of(a, "fuse_epilogues"), "chains on cuda:0 give one result");
  EXPECT_EQ(a.text.find("the last %"), std::string::npos) << a.text;
  EXPECT_NE(a.text.find("relu"), std::string::npos) << a.text;

  Graph between = capture(
      [=](std::span<const Tensor> in) {
        const Tensor h = relu(linear(in[0], w1));
        return std::vector<Tensor>{h, linear(h, w2)};
      },
      {zeros({3, 4})});
  between.device = {DeviceType::cuda, 0};
  between.capabilities = {};
  EXPECT_EQ(reason_of(after(between, "form_row_chains"), "form_row_chains"),
            "chains on cuda:0 give one result");

  Graph merged = capture(
      [=](std::span<const Tensor> in) {
        const Tensor gate = linear(in[0], w1);
        return std::vector<Tensor>{gate * linear(in[0], w2), gate};
      },
      {zeros({3, 4})});
  merged.device = {DeviceType::cuda, 0};
  merged.capabilities = {};
  EXPECT_EQ(reason_of(after(merged, "merge_gemms"), "merge_gemms"),
            "chains on cuda:0 give one result");
}

TEST(FuseEpilogues, WhatMakesAnOperandJoinsTheProduct) {
  const Tensor w = zeros({4, 4});
  const Graph g = capture(
      [w](std::span<const Tensor> in) {
        const Tensor gate = silu(in[1]);
        return one(gate * linear(in[0], w));
      },
      {zeros({3, 4}), zeros({3, 4})});
  const std::string text = after(g, "fuse_epilogues").text;
  EXPECT_NE(text.find("operands %1: v2 = silu(v1); v3 = mul(v2, v0); store v3"), std::string::npos)
      << text;
}

TEST(FuseEpilogues, NotWhereAnotherNodeStandsBetween) {
  const Tensor w = zeros({4, 4});
  const Graph g = capture(
      [w](std::span<const Tensor> in) {
        const Tensor y = linear(in[0], w);
        const Tensor scale = softmax(y, -1);
        return one(y * scale);
      },
      {zeros({3, 4})});
  EXPECT_EQ(reason_of(after(g, "fuse_epilogues"), "fuse_epilogues"),
            "what stands between them needs one and makes the other");
}

TEST(FusePointwise, AChainIsOneProgram) {
  const Graph g = capture([](std::span<const Tensor> in) { return one(neg(relu(in[0]) * in[1])); },
                          {zeros({3, 4}), zeros({4})});
  EXPECT_EQ(after(g, "fuse_pointwise").text,
            "%0 = input f32[3, 4]\n"
            "%1 = input f32[4]\n"
            "%4 = pointwise(%0, %1): v2 = relu(v0); v3 = mul(v2, v1); v4 = neg(v3); store v4 -> "
            "f32[3, 4]\n"
            "return %4\n");
}

TEST(FormRowChains, NormAndBothProductsAreOneChain) {
  const Tensor w1 = zeros({6, 4});
  const Tensor w2 = zeros({4, 6});
  const Tensor g = ones({4});
  const Graph graph = capture(
      [=](std::span<const Tensor> in) {
        return one(linear(relu(linear(rms_norm(in[0], {4}, g, 0.5), w1)), w2));
      },
      {zeros({3, 4})});
  const std::string text = after(graph, "form_row_chains").text;
  EXPECT_NE(text.find("= chain(%0) -> f32[3, 4]\n    norm: rms(weight %1, bias none, eps 0.5)\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("aten::"), std::string::npos) << text;
}

TEST(FormRowChains, NotANormWhoseStatisticsAreRead) {
  const Tensor w = zeros({6, 4});
  const Graph g = capture(
      [w](std::span<const Tensor> in) {
        const Outputs norm = run_op(kNativeLayerNorm, std::array{in[0], Tensor(), Tensor()},
                                    std::array<Attr, 2>{Dims{4}, 1e-5});
        return std::vector<Tensor>{linear(norm[0], w), norm[1]};
      },
      {zeros({3, 4})});
  EXPECT_EQ(reason_of(after(g, "form_row_chains"), "form_row_chains"), "its statistics are read");
}

TEST(FormRowChains, AHiddenBlockThatDoesNotFitStaysTwoChains) {
  // 96 rows of 21846 f32 take more than 8 MiB, of 21845 not.
  for (const int64_t hidden : {21845, 21846}) {
    const Tensor w1 = empty({hidden, 4});
    const Tensor w2 = empty({4, hidden});
    const After a = after(
        capture([=](std::span<const Tensor> in) { return one(linear(linear(in[0], w1), w2)); },
                {zeros({3, 4})}),
        "form_row_chains");
    EXPECT_EQ(reason_of(a, "form_row_chains").empty(), hidden == 21845);
  }
}

TEST(FoldViews, ViewsThatUndoEachOtherGo) {
  const Graph g = capture(
      [](std::span<const Tensor> in) {
        const Tensor y = relu(in[0]);
        return std::vector<Tensor>{t(t(y)), neg(view(view(y, {4, 3}), {3, 4}))};
      },
      {zeros({3, 4})});
  EXPECT_EQ(after(g, "drop_dead").text,
            "%0 = input f32[3, 4]\n"
            "%1 = aten::relu(%0) -> f32[3, 4]\n"
            "%6 = aten::neg(%1) -> f32[3, 4]\n"
            "return %1, %6\n");
}

TEST(CollapseLinears, OnlyWhereAskedForAndCheaper) {
  const auto f = [](int64_t hidden) {
    const Tensor w1 = zeros({hidden, 4});
    const Tensor w2 = zeros({4, hidden});
    return capture([=](std::span<const Tensor> in) { return one(linear(linear(in[0], w1), w2)); },
                   {zeros({3, 4})});
  };
  EXPECT_NE(reason_of(after(f(64), "collapse_linears"), "collapse_linears").find("not asked for"),
            std::string::npos);
  passes::PipelineOptions options;
  options.collapse_linears = true;
  EXPECT_EQ(reason_of(after(f(1), "collapse_linears", options), "collapse_linears"),
            "one product would not be cheaper");
  const std::string text = after(f(64), "collapse_linears", options).text;
  EXPECT_NE(text.find("parameter f32[4, 4]"), std::string::npos) << text;
}

TEST(DropDead, WhatNobodyReadsGoes) {
  const Graph g = capture(
      [](std::span<const Tensor> in) {
        exp(relu(in[0]));
        return one(neg(in[0]));
      },
      {zeros({3})});
  const std::string text = after(g, "drop_dead").text;
  EXPECT_EQ(text.find("exp"), std::string::npos) << text;
  EXPECT_EQ(text.find("relu"), std::string::npos) << text;
}

TEST(Pipeline, SkippedPassesDoNothingAndUnknownNamesAreRefused) {
  passes::PipelineOptions options;
  options.skip = {"merge_gemms"};
  EXPECT_EQ(after(gated_mlp(), "fuse_epilogues", options).text.find(", %19:"), std::string::npos);
  Graph g = gated_mlp();
  options.skip = {"make_faster"};
  EXPECT_NE(error_of([&] { passes::run_pipeline(g, options); }).find("'make_faster'"),
            std::string::npos);
}

TEST(Pipeline, TwiceIsOnce) {
  Graph g = gated_mlp();
  passes::run_pipeline(g, {});
  const std::string first = graph::to_text(g);
  passes::run_pipeline(g, {});
  EXPECT_EQ(graph::to_text(g), first);
}

}  // namespace
}  // namespace epilogue::testing
