// SPDX-License-Identifier: Apache-2.0
//           ┌─ dg ── product(w1) ─┐
//   chain ──┤                     add     becomes    chain ── [dg du] product([w1 w2])
//           └─ du ── product(w2) ─┘
// The gradient of what a gated layer reads: one product whose rows are both, side by side. Nothing
// between is stored, and what is summed is rounded once.
#include <algorithm>
#include <array>
#include <optional>

#include "passes/chain_stages.h"
#include "passes/pipeline.h"
#include "passes/product.h"

namespace epilogue::passes {
namespace {

using fused::Chain;
using graph::Graph;
using graph::Node;
using graph::Uses;

bool is_one_product(const Node& node) {
  const Chain* chain = node.as<Chain>();
  return chain != nullptr && chain->stages.size() == 1 && chain->stages[0].weights.size() == 1 &&
         chain->norm.kind == Norm::none && node.outputs.size() == 1;
}

// The value into which `value` goes and nothing else does, by an add: -1 where there is none.
int next_sum(const PointwiseProgram& program, int value) {
  int next = -1;
  int uses = 0;
  for (const int output : program.outputs) uses += output == value;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const PointwiseStep& step = program.steps[i];
    const auto reads = static_cast<int>(std::ranges::count(step.values(), value));
    if (reads == 0) continue;
    uses += reads;
    if (step.fn == PointwiseFn::add && step.has_default_parameters())
      next = program.inputs + static_cast<int>(i);
  }
  return uses == 1 ? next : -1;
}

// The sums that inputs 0 and 1 go into one after the other.
std::vector<int> sums_of(const PointwiseProgram& program, int input) {
  std::vector<int> sums;
  for (int v = next_sum(program, input); v >= 0; v = next_sum(program, v)) sums.push_back(v);
  return sums;
}

// Inputs 0 and 1 as one, their sum, which is input 0 then; nullopt where the program is no function
// of that.
std::optional<PointwiseProgram> with_summed_inputs(const PointwiseProgram& program) {
  for (const int bare : {0, 1}) {
    const int meeting = next_sum(program, bare);
    const std::vector<int> others = sums_of(program, 1 - bare);
    if (meeting < 0 || std::find(others.begin(), others.end(), meeting) == others.end()) continue;
    const PointwiseStep& sum = program.steps[static_cast<size_t>(meeting - program.inputs)];
    const int rest = sum.operands[0] == bare ? sum.operands[1] : sum.operands[0];
    if (rest == kConstantOperand) continue;
    const auto renamed = [&](int v) {
      if (v == meeting) v = rest;
      return v <= 1 ? std::min(v, 0) : v - 1 - (v > meeting ? 1 : 0);
    };
    PointwiseProgram result{program.inputs - 1, {}, {}};
    for (size_t i = 0; i < program.steps.size(); ++i) {
      if (program.inputs + static_cast<int>(i) == meeting) continue;
      PointwiseStep step = program.steps[i];
      for (int& v : step.values()) v = renamed(v);
      result.steps.push_back(step);
    }
    for (const int output : program.outputs) result.outputs.push_back(renamed(output));
    return result;
  }
  return std::nullopt;
}

// Two products of which one adds the other.
struct Pair {
  size_t first;
  size_t second;
  BoundProgram program;  // of both products, which are its inputs 0 and 1
};

std::optional<Pair> pair_of(const Graph& graph, const Uses& uses, size_t index) {
  const Node& second = graph.nodes[index];
  if (!is_one_product(second)) return std::nullopt;
  for (const int v : second.as<Chain>()->stages[0].operands) {
    const int producer = uses.producer(v);
    if (producer < 0 || !only_reader(uses, second, v)) continue;
    const Node& first = graph.nodes[static_cast<size_t>(producer)];
    if (!is_one_product(first) || !(graph.value(v).sizes == graph.value(second.outputs[0]).sizes))
      continue;
    ProgramBuilder builder;
    builder.add_input(product_input(0));
    builder.add_input(product_input(1));
    builder.append(last_program(first));
    BoundProgram adding = last_program(second);
    adding.inputs[0] = product_input(1);
    builder.append(adding);
    return Pair{static_cast<size_t>(producer), index, builder.finish(second.outputs)};
  }
  return std::nullopt;
}

bool try_stack(Graph& graph, size_t index, PassContext& context) {
  const Uses uses(graph);
  const std::optional<Pair> pair = pair_of(graph, uses, index);
  if (!pair) return false;
  const Node& first = graph.nodes[pair->first];
  const Node& second = graph.nodes[pair->second];
  const std::array<int, 2> x = {first.as<Chain>()->x, second.as<Chain>()->x};
  const int maker = uses.producer(x[0]);
  const std::string what =
      label(graph, first) + " and " + label(graph, second) + " as one product of rows side by side";
  const std::optional<PointwiseProgram> program = with_summed_inputs(pair->program.program);
  std::string reason;
  if (!program) reason = "they meet in more than a sum";
  if (maker < 0 || maker != uses.producer(x[1]) || x[0] == x[1] ||
      graph.nodes[static_cast<size_t>(maker)].as<Chain>() == nullptr)
    reason = "their rows are not made by one chain";
  Extension extension;
  if (reason.empty()) {
    fused::ChainStage stage;
    stage.weights = {first.as<Chain>()->stages[0].weights[0],
                     second.as<Chain>()->stages[0].weights[0]};
    stage.stacked = true;
    stage.epilogue = *program;
    stage.operands.assign(pair->program.inputs.begin() + 2, pair->program.inputs.end());
    extension = {static_cast<size_t>(maker),
                 {pair->first, pair->second},
                 {x[0], x[1]},
                 {stage},
                 second.outputs[0]};
    reason = reason_against(graph, extension);
  }
  if (!reason.empty()) {
    context.declined(what, reason);
    return false;
  }
  // Neither rows are read again, and the first product is not written and read.
  context.did(what,
              2 * graph::value_bytes(graph.value(x[0])) +
                  2 * graph::value_bytes(graph.value(first.outputs[0])),
              2);
  extend_chain(graph, extension);
  return true;
}

}  // namespace

void stack_gemms(Graph& graph, PassContext& context) {
  for (size_t i = 0; i < graph.nodes.size();)
    // Three nodes are one now: what followed has moved up.
    i = try_stack(graph, i, context) ? i - 2 : i + 1;
}

}  // namespace epilogue::passes
