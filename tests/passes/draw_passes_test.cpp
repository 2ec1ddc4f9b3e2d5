// SPDX-License-Identifier: Apache-2.0
// What passes do around draws of random numbers, and that they leave these alone.
#include "pass_testing.h"

namespace epilogue::testing {
namespace {

Graph capture_one(const std::function<Tensor(const Tensor&)>& f) {
  return capture([&](std::span<const Tensor> in) { return one(f(in[0])); }, {zeros({3, 4})});
}

TEST(NarrowDraws, AMaskThatProgramsReadIsBytes) {
  const Graph g = capture_one([](const Tensor& x) { return neg(dropout(x, 0.25, true)); });
  const After a = after(g, "narrow_draws");
  EXPECT_EQ(a.text,
            "%0 = input f32[3, 4]\n"
            "%1 = aten::bernoulli_(none; 0.75) -> u8[3, 4]\n"
            "%5 = pointwise(%1, %0): v2 = div(v0, 0.75); v3 = mul(v1, v2); v4 = neg(v3); store v4 "
            "-> f32[3, 4]\n"
            "return %5\n");
  const auto narrowed = std::ranges::find_if(
      a.notes, [](const auto& n) { return n.what == "aten::bernoulli_ %1 as bytes" && n.done(); });
  ASSERT_NE(narrowed, a.notes.end());
  EXPECT_EQ(narrowed->bytes_saved, 2 * 3 * 12) << "three of four bytes, written and read";
}

TEST(NarrowDraws, AMaskThatAnOpReadsKeepsItsDtype) {
  const Graph g = capture_one([](const Tensor& x) {
    const Tensor mask = empty({3, 4});
    run_op(kBernoulli_, {mask}, {0.5});
    return x * softmax(mask, 0);
  });
  const After a = after(g, "narrow_draws");
  EXPECT_NE(a.text.find("aten::bernoulli_(none; 0.5) -> f32[3, 4]"), std::string::npos) << a.text;
  const auto declined = std::ranges::find_if(
      a.notes, [](const auto& n) { return n.what == "aten::bernoulli_ %1 as bytes" && !n.done(); });
  ASSERT_NE(declined, a.notes.end());
  EXPECT_NE(declined->reason.find("reads it, which is no program"), std::string::npos);
}

TEST(DropDead, DrawsThatNobodyReadsStayBeforeThoseBehindThem) {
  const Graph g = capture_one([](const Tensor& x) {
    dropout(x, 0.25, true);
    return dropout(x, 0.5, true);
  });
  const std::string text = after(g, "drop_dead").text;
  EXPECT_EQ(count_of(text, "aten::"), 2U) << text;
  EXPECT_LT(text.find("aten::bernoulli_(none; 0.75)"), text.find("aten::bernoulli_(none; 0.5)"));
}

// In the graph of a training step a draw that no result needs is no part of the backward pass.
TEST(RecomputeSaved, WhatIsMadeOfADrawIsMadeAgainOfTheSameDraw) {
  for (const Saved saved : {Saved::automatic, Saved::recompute}) {
    Graph g = capture(
        [](std::span<const Tensor> in) {
          const Tensor mask = empty({3, 4});
          run_op(kBernoulli_, {mask}, {0.5});
          const Tensor scaled = div(mask, 0.5);
          dropout(in[0], 0.25, true);
          return std::vector<Tensor>{in[0] * scaled, in[1] * scaled};
        },
        {zeros({3, 4}), zeros({3, 4})});
    graph::mark_backward(g, 1);
    passes::PipelineOptions options;
    options.saved = saved;
    const After a = after(g, "recompute_saved", options);
    EXPECT_EQ(count_of(a.text, "aten::bernoulli_(none; 0.5)"), 1U) << a.text;
    EXPECT_EQ(count_of(a.text, "aten::bernoulli_(none; 0.75)"), 1U) << a.text;
    EXPECT_EQ(count_of(a.text, "aten::div(%2, "), 2U) << a.text;
  }
}

}  // namespace
}  // namespace epilogue::testing
