// SPDX-License-Identifier: Apache-2.0
//       ┌─ product(w1) ─ f ─┐
//   x ──┤                   ├─ op     becomes    x ── product(w1, w2) [f, op]
//       └─ product(w2) ─────┘
// The rows of x are read once, and neither product leaves the cache.
#include <optional>
#include <ranges>

#include "passes/passes.h"
#include "passes/product.h"

namespace epilogue::passes {
namespace {

using graph::Chain;
using graph::ChainStage;
using graph::Graph;
using graph::Node;
using graph::Uses;

// A product and the pointwise nodes between it and the op where the branches meet, last one first.
struct Branch {
  size_t product;
  std::vector<size_t> between;
};

// Up from `value` through nodes that nobody else reads.
std::optional<Branch> branch_of(const Graph& graph, const Uses& uses, int value,
                                const Node& reader) {
  Branch branch{};
  const Node* below = &reader;
  for (;;) {
    const int producer = uses.producer(value);
    if (producer < 0 || !only_reader(uses, *below, value)) return std::nullopt;
    const auto index = static_cast<size_t>(producer);
    const Node& node = graph.nodes[index];
    if (const Chain* chain = node.chain()) {
      const bool is_product = chain->stages.size() == 1 && chain->stages[0].weights.size() == 1 &&
                              chain->norm.kind == NormKind::none;
      branch.product = index;
      return is_product ? std::optional<Branch>(branch) : std::nullopt;
    }
    std::string reason;
    const std::optional<BoundProgram> program = program_of(graph, node, reason);
    const bool one_branch = program && program->inputs.size() == 1 &&
                            graph.value(program->inputs[0]).sizes == graph.value(value).sizes;
    if (!one_branch) return std::nullopt;
    branch.between.push_back(index);
    below = &node;
    value = program->inputs[0];
  }
}

// What a branch computes, with its product called `product`.
void append_branch(ProgramBuilder& builder, const Graph& graph, const Branch& branch, int product) {
  const Node& node = graph.nodes[branch.product];
  BoundProgram program = program_of(node.chain()->stages[0]);
  program.inputs[0] = product;
  builder.append(program, node.outputs[0]);
  for (const size_t index : branch.between | std::views::reverse) {
    std::string reason;
    builder.append(*program_of(graph, graph.nodes[index], reason), graph.nodes[index].outputs[0]);
  }
}

std::string reason_against(const Graph& graph, const Node& reader, const Branch& a,
                           const Branch& b) {
  const Chain& first = *graph.nodes[a.product].chain();
  const Chain& second = *graph.nodes[b.product].chain();
  if (first.x != second.x) return "the products read different rows";
  if (!(graph.value(first.stages[0].weights[0]).sizes ==
        graph.value(second.stages[0].weights[0]).sizes))
    return "the weights have different sizes";
  const graph::Value& made = graph.value(graph.nodes[a.product].outputs[0]);
  const graph::Value& result = graph.value(reader.outputs[0]);
  if (!(made.sizes == result.sizes) || made.dtype != result.dtype)
    return "the op that joins them changes sizes or dtype";
  return "";
}

void merge(Graph& graph, size_t index, const BoundProgram& joining, const Branch& a,
           const Branch& b) {
  Node& reader = graph.nodes[index];
  Chain chain = *graph.nodes[a.product].chain();
  ChainStage& stage = chain.stages[0];
  stage.weights.push_back(graph.nodes[b.product].chain()->stages[0].weights[0]);
  ProgramBuilder builder;
  builder.add_input(product_input(0));
  builder.add_input(product_input(1));
  append_branch(builder, graph, a, product_input(0));
  append_branch(builder, graph, b, product_input(1));
  builder.append(joining, reader.outputs[0]);
  set_program(stage, builder.finish(reader.outputs[0]));

  std::vector<bool> dead(graph.nodes.size(), false);
  for (const Branch* branch : {&b, &a}) {
    for (const size_t i : branch->between) {
      take_over(reader, graph.nodes[i]);
      dead[i] = true;
    }
    take_over(reader, graph.nodes[branch->product]);
    dead[branch->product] = true;
  }
  reader.what = std::move(chain);
  graph::erase_nodes(graph, dead);
}

// True where the node at `index` was merged with its branches.
bool try_merge(Graph& graph, size_t index, PassContext& context) {
  const Node& node = graph.nodes[index];
  std::string reason;
  const std::optional<BoundProgram> joining = program_of(graph, node, reason);
  if (!joining || joining->inputs.size() != 2) return false;
  const Uses uses(graph);
  const auto a = branch_of(graph, uses, joining->inputs[0], node);
  const auto b = branch_of(graph, uses, joining->inputs[1], node);
  if (!a || !b || a->product == b->product) return false;
  const std::string what = label(graph, graph.nodes[a->product]) + " and " +
                           label(graph, graph.nodes[b->product]) + " that meet in " +
                           label(graph, node);
  reason = reason_against(graph, node, *a, *b);
  if (!reason.empty()) {
    context.declined(what, reason);
    return false;
  }
  // Written and read no more: every result on the two branches. And x is read once, not twice.
  const auto merged = static_cast<int>(2 + a->between.size() + b->between.size());
  const double saved = 2 * merged * graph::value_bytes(graph.value(node.outputs[0])) +
                       graph::value_bytes(graph.value(graph.nodes[a->product].chain()->x));
  merge(graph, index, *joining, *a, *b);
  context.did(what, saved, merged);
  return true;
}

}  // namespace

void merge_gemms(Graph& graph, PassContext& context) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const size_t before = graph.nodes.size();
    // A merge removes nodes before i, which itself moves up.
    if (try_merge(graph, i, context)) i -= before - graph.nodes.size();
  }
}

}  // namespace epilogue::passes
