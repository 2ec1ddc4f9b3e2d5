// SPDX-License-Identifier: Apache-2.0
// The passes that training needs: a graph before, its text after.
#include "pass_testing.h"

namespace epilogue::testing {
namespace {

// The backward pass of a gated layer in ops: dh = dy w, dg = dh u, du = dh g, dx = dg a + du b.
std::vector<Tensor> gated_backward(std::span<const Tensor> in, const Tensor& w, const Tensor& a,
                                   const Tensor& b) {
  const Tensor dh = matmul(in[0], t(w));
  const Tensor dg = dh * in[2];
  const Tensor du = dh * in[1];
  const Tensor from_gate = matmul(dg, t(a));
  return {matmul(du, t(b)) + from_gate, dg};
}

Graph gated_backward_graph() {
  const Tensor w = zeros({6, 4});
  const Tensor a = zeros({4, 6});
  const Tensor b = zeros({4, 6});
  return capture([=](std::span<const Tensor> in) { return gated_backward(in, w, a, b); },
                 {zeros({3, 4}), zeros({3, 6}), zeros({3, 6})});
}

TEST(StackGemms, ProductsThatAreSummedBecomeOneOfRowsSideBySide) {
  const std::string text = after(gated_backward_graph(), "stack_gemms").text;
  EXPECT_NE(text.find("store v3 v4 v3, the last %"), std::string::npos) << text;
  EXPECT_NE(text.find("stacked product with"), std::string::npos) << text;
  EXPECT_EQ(text.find("aten::"), std::string::npos) << text;
}

TEST(StackGemms, OtherTermsOfTheSumStay) {
  const Tensor w = zeros({6, 4});
  const Tensor a = zeros({4, 6});
  const Graph g = capture(
      [=](std::span<const Tensor> in) {
        const std::vector<Tensor> rows = gated_backward(in, w, a, a);
        return one(rows[0] + in[0]);
      },
      {zeros({3, 4}), zeros({3, 6}), zeros({3, 6})});
  const std::string text = after(g, "stack_gemms").text;
  EXPECT_NE(text.find("operands %0: v2 = add(v0, v1); store v2"), std::string::npos) << text;
}

TEST(StackGemms, NotWhereTheRowsComeFromElsewhereOrTheyMeetInMoreThanASum) {
  const Tensor a = zeros({4, 6});
  const Graph apart = capture(
      [=](std::span<const Tensor> in) {
        const Tensor first = matmul(in[0], t(a));
        return one(first + matmul(in[1], t(a)));
      },
      {zeros({3, 6}), zeros({3, 6})});
  EXPECT_EQ(reason_of(after(apart, "stack_gemms"), "stack_gemms"),
            "their rows are not made by one chain");
  const Tensor w = zeros({6, 4});
  const Graph scaled = capture(
      [=](std::span<const Tensor> in) {
        const Tensor dh = matmul(in[0], t(w));
        const Tensor dg = dh * in[2];
        const Tensor du = dh * in[1];
        const Tensor first = matmul(dg, t(a));
        return one(first * 2.0 + matmul(du, t(a)));
      },
      {zeros({3, 4}), zeros({3, 6}), zeros({3, 6})});
  EXPECT_EQ(reason_of(after(scaled, "stack_gemms"), "stack_gemms"), "they meet in more than a sum");
}

// y = (gelu(x w)) v with the product read again by the "backward pass": everything that y does not
// need.
Graph saving_graph() {
  const Tensor w = zeros({6, 4});
  const Tensor v = zeros({4, 6});
  Graph g = capture(
      [=](std::span<const Tensor> in) {
        const Tensor p = matmul(in[0], t(w));
        const Tensor h = gelu(p, Gelu::tanh);
        const Tensor y = matmul(h, t(v));
        const Tensor dh = matmul(y, v);
        const Tensor dp = run_op(kGeluBackward, {dh, p}, {int64_t{1}});
        return std::vector<Tensor>{y, dp, matmul(t(y), h)};
      },
      {zeros({3, 4})});
  graph::mark_backward(g, 1);
  return g;
}

TEST(RecomputeSaved, PointwiseOpsRunAgainFromWhatIsSavedAnyway) {
  passes::PipelineOptions options;
  options.packed = Packed::always;
  const After a = after(saving_graph(), "recompute_saved", options);
  EXPECT_EQ(count_of(a.text, "aten::gelu("), 2U) << a.text;
  EXPECT_NE(reason_of(a, "recompute_saved").find("it takes"), std::string::npos)
      << "the product is saved";
}

TEST(RecomputeSaved, NothingRunsAgainWhereAllIsSaved) {
  passes::PipelineOptions options;
  options.saved = Saved::save;
  const Graph g = saving_graph();
  const After a = after(g, "recompute_saved", options);
  const After before = after(g, "collapse_linears", options);
  EXPECT_EQ(a.text, before.text);
}

TEST(RecomputeSaved, ProductsRunAgainWhereAskedFor) {
  passes::PipelineOptions options;
  options.saved = Saved::recompute;
  options.packed = Packed::always;
  const After a = after(saving_graph(), "recompute_saved", options);
  EXPECT_EQ(count_of(a.text, "product with"), 4U) << a.text;
}

TEST(KeepCasts, ACastWeightIsAWeightUnlessItIsAResult) {
  const Tensor w = zeros({6, 4});
  const Tensor handed = zeros({6, 4});
  const Graph g = capture(
      [=](std::span<const Tensor> in) {
        return std::vector<Tensor>{linear(in[0], to(w, DType::bf16)), t(to(handed, DType::bf16))};
      },
      {zeros({3, 4}, DType::bf16)});
  const std::string text = after(g, "fold_views").text;
  EXPECT_EQ(count_of(text, "product with"), 1U) << text;
  EXPECT_EQ(count_of(text, "aten::_to_copy"), 1U) << text;
}

}  // namespace
}  // namespace epilogue::testing
