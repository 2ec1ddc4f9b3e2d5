// SPDX-License-Identifier: Apache-2.0
#include "passes/product.h"

#include <algorithm>
#include <cmath>

#include "epilogue/ops.h"
#include "ops/ops.h"
#include "passes/cost_model.h"
#include "passes/fuse_nodes.h"
#include "passes/reducing_programs.h"

namespace epilogue::passes {

using fused::Chain;
using fused::ChainStage;
using graph::Graph;
using graph::Node;
using graph::OpCall;
using graph::Uses;
using graph::Value;
using graph::ValueKind;

std::string label(const Graph&, const Node& node) {
  std::string text = "node";
  if (const OpCall* call = node.call()) text = call->op->name;
  if (node.fused() != nullptr) text = node.fused()->label();
  return text + " %" + std::to_string(node.outputs[0]);
}

bool is_reshaping_view(const Node& node) {
  const OpCall* call = node.call();
  return call != nullptr && (call->op == &kView || call->op == &kUnsafeView);
}

bool only_reader(const Uses& uses, const Node& node, int value) {
  const std::vector<int> list = graph::reads(node);
  return uses.count(value) == std::count(list.begin(), list.end(), value);
}

void take_over(Node& into, const Node& from) {
  into.replaces.insert(into.replaces.begin(), from.replaces.begin(), from.replaces.end());
  into.flops += from.flops;
  into.eager_bytes += from.eager_bytes;
}

namespace {

// x as a chain can read it: rows with contiguous columns.
bool is_rows(const Value& x) {
  if (x.sizes.rank() == 0) return false;
  const auto layout = graph::row_layout(x, x.sizes);
  const int last = x.sizes.rank() - 1;
  return layout && (x.sizes[last] == 1 || x.strides[last] == 1);
}

Dims with_columns(Dims sizes, int64_t columns) {
  sizes[sizes.rank() - 1] = columns;
  return sizes;
}

// What a product reads and makes, before and after the views around it are folded.
struct ProductValues {
  int x;
  int out;
  int view = -1;  // index of the view behind it, which goes
};

// mm of views: x [8, 128, k] -> view [1024, k] -> mm -> view [8, 128, n].
ProductValues values_of(const Graph& graph, const Uses& uses, int a, int out) {
  const ProductValues plain{a, out};
  const int before = uses.producer(a);
  int x = a;
  if (before >= 0 && is_reshaping_view(graph.nodes[static_cast<size_t>(before)]))
    x = graph.nodes[static_cast<size_t>(before)].call()->inputs[0];
  const int64_t k = graph.value(a).sizes[1];
  const Value& rows = graph.value(x);
  if (x == a || !is_rows(rows) || rows.sizes[rows.sizes.rank() - 1] != k) return plain;
  const Dims wanted = with_columns(rows.sizes, graph.value(out).sizes[1]);
  if (wanted == graph.value(out).sizes) return {x, out};
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (is_reshaping_view(node) && node.call()->inputs[0] == out && uses.is_single(out) &&
        graph.value(node.outputs[0]).sizes == wanted)
      return {x, node.outputs[0], static_cast<int>(i)};
  }
  return plain;
}

// beta * bias + alpha * product; beta 0 leaves the bias unread, as the op does.
ChainStage stage_of(const OpCall& call, int weight) {
  ChainStage stage = {.weights = {weight}, .epilogue = {1, {}, {0}}};
  if (call.op == &kMm) return stage;
  const auto beta = static_cast<float>(std::get<double>(call.attrs[0]));
  const auto alpha = static_cast<float>(std::get<double>(call.attrs[1]));
  if (beta != 0) {
    stage.operands = {call.inputs[0]};
    stage.epilogue.inputs = 2;
  }
  std::vector<PointwiseStep> steps(size_t{alpha != 1} + size_t{beta != 0});
  int value = 0;
  if (alpha != 1) {
    steps.front() = {PointwiseFn::mul, value, kConstantOperand, alpha};
    value = stage.epilogue.inputs;
  }
  if (beta != 0) {
    steps.back() = {PointwiseFn::add, value, 1, 0, beta};
    value = stage.epilogue.inputs + static_cast<int>(steps.size()) - 1;
  }
  stage.epilogue.steps = std::move(steps);
  stage.epilogue.outputs = {value};
  return stage;
}

std::string reason_against(const Graph& graph, const OpCall& call, int a, int b) {
  const Value& weight = graph.value(b);
  if (weight.kind != ValueKind::parameter) return "the second matrix is computed, not a parameter";
  if (weight.dtype != DType::f32 && !is_low_precision(weight.dtype))
    return "products compute f32, bf16 and f16";
  if (weight.sizes[0] == 0 || weight.sizes[1] == 0) return "the weight has no elements";
  if (!is_rows(graph.value(a))) return "the rows are not contiguous";
  if (call.op == &kAddmm && graph.value(call.inputs[0]).dtype != weight.dtype)
    return "the bias has another dtype";
  return "";
}

// Why weights [n, k] should not be packed for m rows; empty where they should.
std::string reason_against_packing(const Graph& graph, Packed packed, const Dims& weight,
                                   int64_t m) {
  if (packed == Packed::always) return "";
  if (packed == Packed::never) return "not asked for";
  if (std::ranges::none_of(graph.nodes, &Node::is_backward)) return "";  // packed once
  const auto n = static_cast<double>(weight[0]);
  const auto k = static_cast<double>(weight[1]);
  const double least = kElementsPerPackedElement * n * k / (n + k);
  if (static_cast<double>(m) >= least) return "";
  return "a step changes the weight, and packing it anew pays from " +
         std::to_string(std::llround(std::ceil(least))) + " rows on";
}

}  // namespace

std::string form_product(Graph& graph, size_t index, Packed packed) {
  const OpCall call = *graph.nodes[index].call();
  const size_t first = call.op == &kAddmm ? 1 : 0;
  const int a = call.inputs[first];
  const int b = call.inputs[first + 1];
  std::string reason = reason_against(graph, call, a, b);
  if (reason.empty())
    reason = reason_against_packing(graph, packed, graph.value(b).sizes, graph.value(a).sizes[0]);
  if (!reason.empty()) return reason;
  const Uses uses(graph);
  ProductValues values = values_of(graph, uses, a, graph.nodes[index].outputs[0]);
  const auto bias_fits = [&](int out) {
    return call.op != &kAddmm ||
           graph::row_layout(graph.value(call.inputs[0]), graph.value(out).sizes).has_value();
  };
  if (!bias_fits(values.out)) values = {a, graph.nodes[index].outputs[0]};
  if (!bias_fits(values.out)) return "the bias does not lie in rows";

  const Tensor weight = t(graph.value(b).tensor);  // [n, k], a view
  const int w = graph.add_value(
      {ValueKind::parameter, weight.sizes(), weight.strides(), weight.dtype(), weight});
  Node& node = graph.nodes[index];
  node.what = std::make_shared<Chain>(values.x, fused::ChainNorm{}, std::vector{stage_of(call, w)});
  node.outputs = {values.out};
  std::vector<bool> dead(graph.nodes.size(), false);
  if (values.view >= 0) dead[static_cast<size_t>(values.view)] = true;
  // The view before it reads x too: in the way of later passes where nobody needs it.
  if (values.x != a && uses.is_single(a)) dead[static_cast<size_t>(uses.producer(a))] = true;
  graph::erase_nodes(graph, dead);
  return "";
}

std::string reason_against_results(const Graph& graph, size_t results) {
  if (results <= 1 || graph.capabilities.chains_store_values) return "";
  return "chains on " + to_string(graph.device) + " give one result";
}

std::string join_chain(Graph& graph, size_t chain, size_t other) {
  const Node& node = graph.nodes[chain];
  const Value& made = graph.value(node.outputs[0]);
  std::string reason;
  const std::optional<BoundProgram> program = any_program_of(graph, graph.nodes[other], reason);
  if (!program) return reason;
  if (!(made.sizes == program->sizes)) return "it broadcasts the product";
  if (has_row_reductions(program->program)) return "it needs whole rows";
  // Comparisons may be stored beside the chain's own result.
  for (const int v : program->results)
    if (const DType dtype = graph.value(v).dtype; dtype != made.dtype && dtype != DType::boolean)
      return "it changes the dtype";
  const BoundProgram last = last_program(node);
  const auto in = [](const std::vector<int>& list, int v) {
    return std::find(list.begin(), list.end(), v) != list.end();
  };
  bool is_reader = false;
  for (const int v : program->inputs) {
    is_reader = is_reader || in(last.results, v);
    if (in(node.outputs, v) && !in(last.results, v)) return "it reads what an earlier stage stores";
  }
  const Members members = {chain, other};
  if (!may_be_one(graph, members))
    return "an op between them reads the result of one and makes an operand of the other";

  ProgramBuilder builder;
  for (const int v : last.inputs)
    if (v <= product_input(0)) builder.add_input(v);
  for (const BoundProgram* p : {is_reader ? &last : &*program, is_reader ? &*program : &last})
    builder.append(*p);
  std::vector<int> results = results_needed(graph, members);
  std::erase_if(results, [&](int v) { return in(node.outputs, v) && !in(last.results, v); });
  // The chain's own result comes first: elements, not their sum.
  const BoundProgram joined = builder.finish(results);
  if (!problem_of(joined.program).empty()) return "it reads a sum over its columns";
  const std::vector<Extent> extent = output_extents(joined.program);
  if (std::ranges::count(extent, Extent::element) == 0) return "only the sum of its result is read";
  size_t own = 0;
  while (own < results.size() &&
         (extent[own] != Extent::element || graph.value(results[own]).dtype != made.dtype))
    ++own;
  if (own == results.size()) return "it changes the dtype";
  const auto first = results.begin() + static_cast<std::ptrdiff_t>(own);
  std::rotate(results.begin(), first, first + 1);
  if (reason = reason_against_results(graph, results.size()); !reason.empty()) return reason;
  Node fused;
  set_last_program(fused, *node.as<Chain>(), builder.finish(results));
  replace_nodes(graph, members, std::move(fused));
  return "";
}

}  // namespace epilogue::passes
