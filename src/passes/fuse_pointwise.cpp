// SPDX-License-Identifier: Apache-2.0
//   a -> gelu -> mul(., b) -> neg    becomes    (a, b) -> [gelu, mul, neg]
//   x -> add(., r) -> softmax        becomes    (x, r) -> [add, row_max, sub, exp, row_sum, ...]
// Ops that reduce rows join where they meet others; alone they run as they are.
#include <algorithm>

#include "fused/program.h"
#include "passes/fuse_nodes.h"
#include "passes/pipeline.h"
#include "passes/product.h"
#include "passes/reducing_programs.h"

namespace epilogue::passes {
namespace {

using fused::Program;
using graph::Graph;
using graph::Node;
using graph::Uses;

bool is_column_of(const Dims& sizes, const Dims& elements) {
  Dims column = elements;
  column[column.rank() - 1] = 1;
  return sizes == column;
}

// What value v is in the program that makes it.
Extent extent_in(const BoundProgram& made, int v) {
  const auto at = std::find(made.results.begin(), made.results.end(), v) - made.results.begin();
  return output_extents(made.program)[static_cast<size_t>(at)];
}

// Whether the reader's steps mean the same beside the maker's: both work on the same elements, or
// the reader on rows' numbers that the maker reduces to.
bool may_meet(const Graph& graph, const BoundProgram& made, const BoundProgram& reader, int v) {
  const Dims& sizes = graph.value(v).sizes;
  const bool same = made.sizes == reader.sizes;
  if (extent_in(made, v) == Extent::element) return same && sizes == made.sizes;
  return (same || is_column_of(reader.sizes, made.sizes)) && is_column_of(sizes, made.sizes);
}

// Whether all that it makes is reduced: it costs nothing to store that beside what was there.
bool only_reduces(const BoundProgram& bound) {
  return std::ranges::count(output_extents(bound.program), Extent::element) == 0;
}

bool is_pointwise_op(const Node& node) {
  return node.as<Program>() != nullptr || (node.call() != nullptr && node.call()->op->pointwise);
}

// Notes why a pointwise op is no program, where it reads what a pointwise op makes: people expect
// these two to be one kernel.
void note_refusal(const Graph& graph, size_t index, const std::string& reason,
                  PassContext& context) {
  const Node& node = graph.nodes[index];
  if (!is_pointwise_op(node)) return;
  const Uses uses(graph);
  for (const int v : graph::reads(node)) {
    if (uses.producer(v) < 0) continue;
    const Node& maker = graph.nodes[static_cast<size_t>(uses.producer(v))];
    if (is_pointwise_op(maker))
      context.declined(label(graph, maker) + " into " + label(graph, node), reason);
  }
}

// Joins the node at `index` with one that makes what it reads; true where that was done.
bool try_fuse(Graph& graph, size_t index, PassContext& context) {
  std::string reason;
  const std::optional<BoundProgram> reader = any_program_of(graph, graph.nodes[index], reason);
  if (!reader) {
    note_refusal(graph, index, reason, context);
    return false;
  }
  const Uses uses(graph);
  for (const int v : reader->inputs) {
    if (uses.producer(v) < 0) continue;
    const auto maker = static_cast<size_t>(uses.producer(v));
    const std::optional<BoundProgram> made = any_program_of(graph, graph.nodes[maker], reason);
    const std::string what =
        label(graph, graph.nodes[maker]) + " into " + label(graph, graph.nodes[index]);
    if (!made && is_pointwise_op(graph.nodes[maker])) context.declined(what, reason);
    if (!made) continue;
    if (!may_meet(graph, *made, *reader, v)) {
      context.declined(what, "the two work on tensors of other sizes");
      continue;
    }
    const bool is_read_by_others = !only_reader(uses, graph.nodes[index], v);
    if (is_read_by_others && !only_reduces(*reader)) {
      context.declined(what, "others read its result too");
      continue;
    }
    const Members members = {maker, index};
    if (!may_be_one(graph, members)) continue;
    ProgramBuilder builder;
    builder.append(*made);
    builder.append(*reader);
    BoundProgram joined = builder.finish(results_needed(graph, members));
    joined.sizes = made->sizes;
    if (const std::string problem(problem_of(joined.program)); !problem.empty()) {
      context.declined(what, problem);
      continue;
    }
    if (!fits(graph, joined)) continue;
    Node fused;
    fused.what = std::make_shared<Program>(joined.program, joined.inputs, joined.sizes);
    fused.outputs = joined.results;
    context.did(what, (is_read_by_others ? 1 : 2) * graph::value_bytes(graph.value(v)), 1);
    replace_nodes(graph, members, std::move(fused));
    return true;
  }
  return false;
}

// One round over all nodes; true where something was joined.
bool fuse_round(Graph& graph, PassContext& context) {
  bool joined = false;
  for (size_t i = 0; i < graph.nodes.size();) {
    const bool done = try_fuse(graph, i, context);
    joined = joined || done;
    // Where two nodes became one, what followed has moved up.
    i = done ? i - 1 : i + 1;
  }
  return joined;
}

}  // namespace

void fuse_pointwise(Graph& graph, PassContext& context) {
  // What was declined may go when others have joined: its notes are those of the last round.
  do {
    context.forget_declined();
  } while (fuse_round(graph, context));
}

}  // namespace epilogue::passes
