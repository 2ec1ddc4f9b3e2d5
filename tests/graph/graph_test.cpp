// SPDX-License-Identifier: Apache-2.0
#include "graph/graph.h"

#include "core/tensor_impl.h"
#include "graph/capture.h"
#include "graph/print.h"
#include "ops/op_testing.h"
#include "support/test.h"

namespace epilogue::testing::graph_test {

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

Graph capture_one(const std::function<Tensor(const Tensor&)>& f) {
  const Tensor x = zeros({2, 4});
  return graph::capture([&](std::span<const Tensor> in) { return std::vector<Tensor>{f(in[0])}; },
                        {&x, 1});
}

// Another tensor of the same elements that no op made, as autograd keeps.
Tensor handle_of(const Tensor& t) { return detail::make_view(t, t.sizes(), t.strides()); }

TEST(Capture, ADrawIsANodeThatMakesItsMask) {
  const RngState before = rng_state();
  const Graph g = capture_one([](const Tensor& x) { return dropout(x, 0.25, true); });
  EXPECT_EQ(graph::to_text(g),
            "%0 = input f32[2, 4]\n"
            "%2 = constant 0.75\n"
            "%1 = aten::bernoulli_(none; 0.75) -> f32[2, 4]\n"
            "%3 = aten::div(%1, %2) -> f32[2, 4]\n"
            "%4 = aten::mul(%0, %3) -> f32[2, 4]\n"
            "return %4\n");
  EXPECT_EQ(g.nodes[1].replaces, std::vector<std::string_view>{"aten::div_"}) << "as eager ran it";
  EXPECT_EQ(g.draws, 1U);
  EXPECT_EQ(rng_state().offset, before.offset);
}

// Reads before a write read what was there before.
TEST(Capture, WritesToWhatTheFunctionMadeMakeNewValues) {
  EXPECT_EQ(graph::to_text(capture_one([](const Tensor& x) {
              const Tensor y = neg(x);
              const Tensor before = exp(y);
              const Tensor same = handle_of(y);
              add_(y, before, 2.0);
              mul_(y, y);
              return y * same;
            })),
            "%0 = input f32[2, 4]\n"
            "%1 = aten::neg(%0) -> f32[2, 4]\n"
            "%2 = aten::exp(%1) -> f32[2, 4]\n"
            "%3 = aten::add(%1, %2; 2) -> f32[2, 4]\n"
            "%4 = aten::mul(%3, %3) -> f32[2, 4]\n"
            "%5 = aten::mul(%4, %4) -> f32[2, 4]\n"
            "return %5\n");
  EXPECT_EQ(graph::to_text(capture_one([](const Tensor& x) {
              const Tensor sum = zeros({2, 4});
              add_(sum, x);
              const Tensor copy = empty({2, 4});
              return add_(copy_(copy, sum), x);
            })),
            "%0 = input f32[2, 4]\n"
            "%1 = parameter f32[2, 4]\n"
            "%2 = aten::add(%1, %0; 1) -> f32[2, 4]\n"
            "%3 = aten::copy_(none, %2) -> f32[2, 4]\n"
            "%4 = aten::add(%3, %0; 1) -> f32[2, 4]\n"
            "return %4\n");
}

TEST(Capture, RefusesWritesThatOthersWouldSee) {
  const auto message = [](const std::function<Tensor(const Tensor&)>& f) {
    return error_of([&] { capture_one(f); });
  };
  const std::string refused = "[compile] expected ops that write nothing in place, got aten::add_";
  const std::string later = refused + ", of whose memory another view is read later";
  const Tensor weight = zeros({2, 4});
  EXPECT_EQ(message([](const Tensor& x) { return add_(x, x); }), refused) << "an input";
  EXPECT_EQ(message([](const Tensor& x) { return add_(view(x, {8}), scalar(1.0)); }), refused)
      << "a view of one";
  EXPECT_EQ(message([](const Tensor& x) { return add_(contiguous(x), scalar(1.0)); }), refused)
      << "that is the input";
  EXPECT_EQ(message([&](const Tensor& x) { return add_(weight, x); }), refused) << "a parameter";
  EXPECT_EQ(message([](const Tensor& x) { return add_(transpose(neg(x), 0, 1), scalar(1.0)); }),
            refused)
      << "with gaps";
  EXPECT_EQ(message([](const Tensor& x) {
              const Tensor y = neg(x);
              return add_(slice(y, 0, 0, 1), slice(y, 0, 1, 2));
            }),
            refused)
      << "of memory that it reads otherwise too";
  EXPECT_EQ(message([](const Tensor& x) {
              const Tensor y = neg(x);
              const Tensor before = view(y, {8});
              add_(y, scalar(1.0));
              return before;
            }),
            later);
  EXPECT_EQ(message([](const Tensor& x) {
              const Tensor y = neg(x);
              add_(slice(y, 0, 0, 1), scalar(1.0));
              return exp(y);
            }),
            later);
  EXPECT_EQ(message([](const Tensor& x) {
              const Tensor y = neg(x);
              const Tensor same = handle_of(y);
              add_(slice(y, 0, 0, 1), scalar(1.0));
              return exp(same);
            }),
            later)
      << "by a handle that was not met before";
  EXPECT_EQ(message([](const Tensor& x) { return add_(to(x, DType::bf16), x); }), refused)
      << "the sum is f32";
}

TEST(Dot, NamesEveryNodeAndResult) {
  const std::string dot = graph::to_dot(example());
  for (const char* part : {"digraph", "aten::mm(%0, %2)", "result 0", "parameter f32[4, 3]"})
    EXPECT_HAS(dot, part) << part;
}

TEST(Verify, AcceptsWhatCaptureMakes) {
  const Graph graphs[] = {example(), capture_one([](const Tensor& x) { return x; }),
                          capture_one([](const Tensor& x) { return mul_(neg(x), dropout(x)); })};
  for (const Graph& g : graphs)
    EXPECT_EQ(error_of([&] { graph::verify(g); }), "") << graph::to_text(g);
}

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
  EXPECT_HAS(message([](Graph& g) { g.value(4).sizes = {2, 5}; }), "by the op's rule");
  EXPECT_HAS(message([](Graph& g) { g.value(1).tensor = {}; }), "%1");
}

TEST(Verify, KeepsDrawsInTheirOrder) {
  const auto message = [](auto&& breaks) {
    Graph g = capture_one([](const Tensor& x) { return dropout(dropout(x)); });
    graph::verify(g);
    breaks(g);
    return error_of([&] { graph::verify(g); });
  };
  EXPECT_EQ(message([](Graph& g) {
              g.nodes.push_back(g.nodes[0]);
              g.nodes.back().outputs = {g.add_value(g.value(g.nodes[0].outputs[0]))};
            }),
            "[graph] expected 2 draws of random numbers, got 3");
  EXPECT_EQ(message([](Graph& g) {
              std::rotate(g.nodes.begin(), g.nodes.begin() + 3, g.nodes.begin() + 4);
            }),
            "[graph] expected draws in the order of the capture, got %1 = "
            "aten::bernoulli_(none; 0.5) -> f32[2, 4]");
  EXPECT_HAS(message([](Graph& g) { g.nodes[0].is_backward = true; }), "in the forward pass");
  EXPECT_HAS(message([](Graph& g) { std::get<graph::OpCall>(g.nodes[0].what).inputs[0] = 0; }),
             "that read nothing of what they write");
}

Value value_of(Dims sizes, Dims strides, ValueKind kind = ValueKind::input) {
  return Value{.kind = kind, .sizes = sizes, .strides = strides};
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

}  // namespace epilogue::testing::graph_test
