// SPDX-License-Identifier: Apache-2.0
#include "plan/memory_plan.h"

#include "fused/chain.h"

#include "graph/capture.h"
#include "plan_testing.h"

namespace epilogue::testing::memory_plan_test {

graph::Graph captured(const graph::Function& f, const Tensor& x) {
  return graph::capture(f, {&x, 1});
}

plan::MemoryPlan plan_of(const graph::Graph& g) {
  std::vector<int64_t> bytes;
  for (const graph::Value& v : g.values)
    bytes.push_back(static_cast<int64_t>(graph::value_bytes(v)));
  return plan::plan_memory(g, bytes);
}

TEST(MemoryPlan, ALongChainNeedsTwoPlaces) {
  const auto g = captured(
      [](std::span<const Tensor> in) {
        Tensor t = in[0];
        for (int i = 0; i < 6; ++i) t = relu(t);
        return std::vector<Tensor>{t};
      },
      zeros({16}));
  const plan::MemoryPlan p = plan_of(g);
  EXPECT_EQ(p.arena_bytes, 2 * 64);
  EXPECT_EQ(p.unshared_bytes, 5 * 64) << "the sixth is the result";
}

TEST(MemoryPlan, WhatLivesAtTheSameTimeDoesNotOverlap) {
  const auto g = captured(
      [](std::span<const Tensor> in) {
        const Tensor a = relu(in[0]);
        const Tensor b = neg(a);
        const Tensor c = exp(b);
        return std::vector<Tensor>{a * c + b};
      },
      zeros({100}));
  const plan::MemoryPlan p = plan_of(g);
  // a, b, c live together at a * c; the product takes a place of its own beside a, b and c.
  const int a = g.nodes[0].outputs[0];
  const int b = g.nodes[1].outputs[0];
  const int c = g.nodes[2].outputs[0];
  const auto at = [&](int v) { return p.offsets[static_cast<size_t>(v)]; };
  EXPECT_GE(std::abs(at(a) - at(b)), 400);
  EXPECT_GE(std::abs(at(a) - at(c)), 400);
  EXPECT_GE(std::abs(at(b) - at(c)), 400);
}

TEST(MemoryPlan, AValueWhoseViewIsAResultIsNotInTheArena) {
  const auto g = captured(
      [](std::span<const Tensor> in) {
        return std::vector<Tensor>{view(relu(in[0]), {4, 4})};
      },
      zeros({16}));
  const plan::MemoryPlan p = plan_of(g);
  EXPECT_EQ(p.offsets[static_cast<size_t>(g.nodes[0].outputs[0])], plan::kNotInArena);
  EXPECT_EQ(p.arena_bytes, 0);
}

TEST(MemoryPlan, AValueLivesAsLongAsItsViews) {
  const auto g = captured(
      [](std::span<const Tensor> in) {
        const Tensor a = relu(in[0]);
        const Tensor v = view(a, {4, 4});
        const Tensor b = neg(neg(in[0]));
        return std::vector<Tensor>{add(view(b, {4, 4}), v)};
      },
      zeros({16}));
  const plan::MemoryPlan p = plan_of(g);
  const auto at = [&](size_t node) {
    return p.offsets[static_cast<size_t>(g.nodes[node].outputs[0])];
  };
  EXPECT_NE(at(0), at(2));
  EXPECT_NE(at(0), at(3));
}

// A graph of chains of one square product each, made by hand.
struct ChainGraph {
  graph::Graph g;
  int x = value(graph::ValueKind::input);
  int w =
      g.add_value({graph::ValueKind::parameter, {16, 16}, {16, 1}, DType::f32, zeros({16, 16})});

  int value(graph::ValueKind kind = graph::ValueKind::intermediate) {
    return g.add_value({kind, {8, 16}, {16, 1}, DType::f32, {}});
  }
  void chain(int rows, std::vector<int> operands, std::vector<int> outputs) {
    fused::ChainStage stage = {.weights = {w}, .operands = std::move(operands)};
    stage.epilogue.inputs = 1 + static_cast<int>(stage.operands.size());
    stage.epilogue.outputs.assign(outputs.size(), 0);
    stage.stores.assign(outputs.begin() + 1, outputs.end());
    graph::Node n;
    n.what = std::make_shared<fused::Chain>(rows, fused::ChainNorm{}, std::vector{stage});
    n.outputs = std::move(outputs);
    g.nodes.push_back(std::move(n));
  }
  plan::MemoryPlan finish(int result) {
    g.inputs = {x};
    g.outputs = {result};
    graph::verify(g);
    return plan_of(g);
  }
};

TEST(MemoryPlan, AChainWritesOverWhatItsProgramReads) {
  ChainGraph c;
  const int u = c.value();
  const int v = c.value();
  const int kept = c.value();
  const int du = c.value();
  const int dv = c.value();
  const int dk = c.value();
  const int y = c.value();
  c.chain(c.x, {}, {kept, u, v});
  c.chain(c.x, {u, v, kept}, {dv, du, dk});  // kept is read again: dk gets a place of its own
  c.chain(kept, {du, dv, dk}, {y});
  const plan::MemoryPlan p = c.finish(y);
  const auto at = [&](int i) { return p.offsets[static_cast<size_t>(i)]; };
  EXPECT_EQ(at(dv), at(u));
  EXPECT_EQ(at(du), at(v));
  EXPECT_NE(at(dk), at(kept));
  EXPECT_EQ(p.arena_bytes, 4 * 512);
  EXPECT_EQ(p.unshared_bytes, 6 * 512);
}

// A block's rows are read whole for each panel of columns that is stored.
TEST(MemoryPlan, AChainDoesNotWriteOverItsRows) {
  ChainGraph c;
  const int a = c.value();
  const int b = c.value();
  const int d = c.value();
  const int y = c.value();
  c.chain(c.x, {}, {a});
  c.chain(a, {}, {b});
  c.chain(b, {b}, {d});
  c.chain(d, {}, {y});
  const plan::MemoryPlan p = c.finish(y);
  const auto at = [&](int i) { return p.offsets[static_cast<size_t>(i)]; };
  EXPECT_NE(at(a), at(b));
  EXPECT_NE(at(b), at(d));
  EXPECT_EQ(p.arena_bytes, 2 * 512);
}

}  // namespace epilogue::testing::memory_plan_test
