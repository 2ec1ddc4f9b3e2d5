// SPDX-License-Identifier: Apache-2.0
#include "graph/graph.h"

#include "graph/capture.h"
#include "graph/print.h"
#include "ops/op_testing.h"

namespace epilogue::testing {
namespace {

using graph::Graph;
using graph::Value;
using graph::ValueKind;

Graph example() {
  const Tensor w = zeros({4, 3});
  const Tensor x = zeros({2, 3});
  return graph::capture(
      [w](std::span<const Tensor> in) {
        return std::vector<Tensor>{gelu(linear(in[0], w), Gelu::tanh) * 0.5};
      },
      {&x, 1});
}

TEST(Capture, NotesTheOpsThatAreNotComposedOfOthers) {
  EXPECT_EQ(graph::to_text(example()),
            "%0 = input f32[2, 3]\n"
            "%1 = parameter f32[4, 3]\n"
            "%5 = constant 0.5\n"
            "%2 = aten::t(%1) -> f32[3, 4]\n"
            "%3 = aten::mm(%0, %2) -> f32[2, 4]\n"
            "%4 = aten::gelu(%3; 1) -> f32[2, 4]\n"
            "%6 = aten::mul(%4, %5) -> f32[2, 4]\n"
            "return %6\n");
}

TEST(Capture, RunsNoKernels) {
  const Tensor x = zeros({4});
  std::string ran;
  graph::capture(
      [&](std::span<const Tensor> in) {
        const CallTree tree;
        const Tensor y = exp(neg(in[0]));
        ran = tree.text;
        return std::vector<Tensor>{y};
      },
      {&x, 1});
  EXPECT_EQ(ran, "aten::neg aten::exp") << "a kernel would be a star";
}

TEST(Dot, NamesEveryNodeAndResult) {
  const std::string dot = graph::to_dot(example());
  for (const char* part : {"digraph", "aten::mm(%0, %2)", "result 0", "parameter f32[4, 3]"})
    EXPECT_NE(dot.find(part), std::string::npos) << part;
}

TEST(Verify, AcceptsWhatCaptureMakes) { graph::verify(example()); }

TEST(Verify, RefusesBrokenGraphs) {
  const auto message = [](auto&& breaks) {
    Graph g = example();
    breaks(g);
    return error_of([&] { graph::verify(g); });
  };
  EXPECT_EQ(message([](Graph& g) { std::get<graph::OpCall>(g.nodes[1].what).inputs[1] = 4; }),
            "[graph] expected values that were computed before, got %4");
  EXPECT_EQ(message([](Graph& g) { g.outputs = {99}; }),
            "[graph] expected values that exist, got %99");
  EXPECT_EQ(message([](Graph& g) { g.nodes[2].outputs = {3}; }),
            "[graph] expected each value to be made once, got %3");
  EXPECT_NE(message([](Graph& g) {
              g.value(4).sizes = {2, 5};
            }).find("by the op's rule"),
            std::string::npos);
  EXPECT_NE(message([](Graph& g) { g.value(1).tensor = {}; }).find("%1"), std::string::npos);
}

Value value_of(Dims sizes, Dims strides, ValueKind kind = ValueKind::input) {
  Value v;
  v.kind = kind;
  v.sizes = sizes;
  v.strides = strides;
  return v;
}

TEST(RowLayout, FindsOneStrideForAllRows) {
  const Dims out{8, 16, 32};
  const auto strides = [&](const Value& v) -> std::vector<int64_t> {
    const auto layout = graph::row_layout(v, out);
    if (!layout) return {};
    return {layout->row_stride, layout->col_stride};
  };
  using List = std::vector<int64_t>;
  EXPECT_EQ(strides(value_of({8, 16, 32}, {512, 32, 1})), (List{32, 1}));
  EXPECT_EQ(strides(value_of({8, 16, 32}, {1024, 64, 2})), (List{64, 2}));
  EXPECT_EQ(strides(value_of({8, 16, 32}, {32, 256, 1})), List{}) << "rows in another order";
  EXPECT_EQ(strides(value_of({32}, {1})), (List{0, 1}));
  EXPECT_EQ(strides(value_of({1, 1, 32}, {32, 32, 1})), (List{0, 1}));
  EXPECT_EQ(strides(value_of({8, 16, 1}, {16, 1, 1})), (List{1, 0}));
  EXPECT_EQ(strides(value_of({}, {})), (List{0, 0}));
  EXPECT_EQ(strides(value_of({16, 32}, {32, 1})), List{}) << "broadcasts over the first rows only";
  EXPECT_EQ(strides(value_of({8, 16, 31}, {496, 31, 1})), List{});
}

TEST(RowLayout, OneRowOfAnInputIsARowButOfAParameterItBroadcasts) {
  const Dims out{1, 32};
  EXPECT_EQ(graph::row_layout(value_of({1, 32}, {32, 1}), out)->row_stride, 32);
  EXPECT_EQ(graph::row_layout(value_of({1, 32}, {32, 1}, ValueKind::parameter), out)->row_stride,
            0);
}

}  // namespace
}  // namespace epilogue::testing
