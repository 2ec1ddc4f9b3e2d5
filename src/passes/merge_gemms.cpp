// SPDX-License-Identifier: Apache-2.0
//       ┌─ product(w1) ─ f ─┐
//   x ──┤                   ├─ op     becomes    x ── product(w1, w2) [f, op]
//       └─ product(w2) ─────┘
// The rows of x are read once, and neither product leaves the cache.
#include <optional>
#include <ranges>

#include "passes/fuse_nodes.h"
#include "passes/pipeline.h"
#include "passes/product.h"

namespace epilogue::passes {
namespace {

using fused::Chain;
using graph::Graph;
using graph::Node;
using graph::Uses;

// A product and the pointwise nodes between it and the op where the branches meet, last one first.
struct Branch {
  size_t product;
  std::vector<size_t> between;
};

// Up from `value` to its product.
std::optional<Branch> branch_of(const Graph& graph, const Uses& uses, int value) {
  Branch branch{};
  for (;;) {
    const int producer = uses.producer(value);
    if (producer < 0) return std::nullopt;
    const auto index = static_cast<size_t>(producer);
    const Node& node = graph.nodes[index];
    if (const Chain* chain = node.as<Chain>()) {
      const bool is_product = chain->stages.size() == 1 && chain->stages[0].weights.size() == 1 &&
                              chain->norm.kind == Norm::none && node.outputs.size() == 1;
      branch.product = index;
      return is_product ? std::optional<Branch>(branch) : std::nullopt;
    }
    std::string reason;
    const std::optional<BoundProgram> program = program_of(graph, node, reason);
    const bool one_branch = program && program->inputs.size() == 1 &&
                            graph.value(program->inputs[0]).sizes == graph.value(value).sizes;
    if (!one_branch) return std::nullopt;
    branch.between.push_back(index);
    value = program->inputs[0];
  }
}

// What a branch computes, with its product called `product`.
void append_branch(ProgramBuilder& builder, const Graph& graph, const Branch& branch, int product) {
  BoundProgram program = last_program(graph.nodes[branch.product]);
  program.inputs[0] = product;
  builder.append(program);
  for (const size_t index : branch.between | std::views::reverse) {
    std::string reason;
    builder.append(*program_of(graph, graph.nodes[index], reason));
  }
}

Members members_of_merge(size_t reader, const Branch& a, const Branch& b) {
  Members members = {reader, a.product, b.product};
  members.insert(members.end(), a.between.begin(), a.between.end());
  members.insert(members.end(), b.between.begin(), b.between.end());
  return members;
}

std::string reason_against_merge(const Graph& graph, size_t index, const Branch& a,
                                 const Branch& b) {
  const Node& reader = graph.nodes[index];
  const Chain& first = *graph.nodes[a.product].as<Chain>();
  const Chain& second = *graph.nodes[b.product].as<Chain>();
  if (first.x != second.x) return "the products read different rows";
  if (!(graph.value(first.stages[0].weights[0]).sizes ==
        graph.value(second.stages[0].weights[0]).sizes))
    return "the weights have different sizes";
  const graph::Value& made = graph.value(graph.nodes[a.product].outputs[0]);
  const graph::Value& result = graph.value(reader.outputs[0]);
  if (!(made.sizes == result.sizes) || made.dtype != result.dtype)
    return "the op that joins them changes sizes or dtype";
  if (!may_be_one(graph, members_of_merge(index, a, b)))
    return "an op between them reads the result of one and makes an operand of the other";
  return reason_against_results(graph, results_needed(graph, members_of_merge(index, a, b)).size());
}

// The result of the op where they meet comes first, then what others read on the way there.
void merge(Graph& graph, size_t index, const BoundProgram& joining, const Branch& a,
           const Branch& b) {
  Chain chain = *graph.nodes[a.product].as<Chain>();
  chain.stages[0].weights.push_back(graph.nodes[b.product].as<Chain>()->stages[0].weights[0]);
  ProgramBuilder builder;
  builder.add_input(product_input(0));
  builder.add_input(product_input(1));
  append_branch(builder, graph, a, product_input(0));
  append_branch(builder, graph, b, product_input(1));
  builder.append(joining);
  const Members members = members_of_merge(index, a, b);
  Node fused;
  set_last_program(fused, std::move(chain), builder.finish(results_needed(graph, members)));
  replace_nodes(graph, members, std::move(fused));
}

// True where the node at `index` was merged with its branches.
bool try_merge(Graph& graph, size_t index, PassContext& context) {
  const Node& node = graph.nodes[index];
  std::string reason;
  const std::optional<BoundProgram> joining = program_of(graph, node, reason);
  if (!joining || joining->inputs.size() != 2) return false;
  const Uses uses(graph);
  const auto a = branch_of(graph, uses, joining->inputs[0]);
  const auto b = branch_of(graph, uses, joining->inputs[1]);
  if (!a || !b || a->product == b->product) return false;
  const std::string what = label(graph, graph.nodes[a->product]) + " and " +
                           label(graph, graph.nodes[b->product]) + " that meet in " +
                           label(graph, node);
  reason = reason_against_merge(graph, index, *a, *b);
  if (!reason.empty()) {
    context.declined(what, reason);
    return false;
  }
  // Read no more: every result on the two branches; written no more: those that nobody else reads.
  // And x is read once, not twice.
  const auto merged = static_cast<int>(2 + a->between.size() + b->between.size());
  const auto stored =
      static_cast<int>(results_needed(graph, members_of_merge(index, *a, *b)).size());
  const double saved =
      (2 * merged + 1 - stored) * graph::value_bytes(graph.value(node.outputs[0])) +
      graph::value_bytes(graph.value(graph.nodes[a->product].as<Chain>()->x));
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
