// SPDX-License-Identifier: Apache-2.0
#include "fused/chain.h"

#include <algorithm>

#include "base/units.h"
#include "core/backend.h"
#include "core/fused_call.h"
#include "fused/program.h"
#include "graph/print.h"

namespace epilogue::fused {

using graph::FusedNode;
using graph::Graph;
using graph::Node;
using graph::NodeRules;
using graph::OperandView;
using graph::Value;

namespace {

constinit const OpDef kRowChainOp{.name = "epilogue::row_chain",
                                  .schema = "(Tensor x, Tensor[] others)",
                                  .doc = "products, norms and pointwise ops over blocks of rows"};

// How the threads share the rows, where they do not just take blocks of them.
std::string sharing_text(const RowChainPlan& p) {
  if (p.splits_rows) return "";
  if (p.hidden_slices == 1) return " that share the columns";
  return " that share " + std::to_string(p.hidden_slices) + " slices of the hidden columns";
}

class PlannedChain final : public FusedKernel {
 public:
  PlannedChain(std::unique_ptr<RowChain> chain, DType dtype)
      : chain_(std::move(chain)), dtype_(dtype) {}

  void run(int64_t rows, std::span<const MatrixView> operands,
           std::span<const MatrixView> results) const override {
    chain_->run(rows, operands[0], operands.subspan(1), results);
  }
  KernelInfo info(int64_t rows, std::string_view ops) const override {
    return describe_row_chain(*chain_, rows, ops, dtype_);
  }
  std::string describe(int64_t rows) const override {
    const std::string choices = chain_->choices();
    if (!choices.empty()) return chain_->kernel_name() + ": " + choices;
    const RowChainPlan p = chain_->plan(rows);
    return chain_->kernel_name() + ", " + std::to_string(p.blocks) + " x " +
           std::to_string(p.block_rows) + " rows on " + std::to_string(p.threads) +
           (p.threads == 1 ? " thread" : " threads") + sharing_text(p) + ", " +
           format_bytes(static_cast<double>(p.scratch_bytes)) + " of scratch";
  }
  bool tune(const KernelTuning& tuning) override { return chain_->tune(tuning); }
  int64_t launches() const override { return chain_->launches(); }
  int64_t scratch_bytes(int64_t rows) const override { return chain_->plan(rows).scratch_bytes; }

 private:
  std::unique_ptr<RowChain> chain_;
  DType dtype_;
};

// Columns of the rows that a stage gives to the next one, or of the result.
int64_t flowing_columns(const Graph& graph, const ChainStage& stage) {
  return stage.flows * graph.value(stage.weights[0]).sizes[0];
}

void verify_weights(const NodeRules& rules, const ChainStage& stage, int64_t columns, DType dtype) {
  rules.require(!stage.weights.empty(), "a stage with weights");
  const Value& first = rules.graph.value(stage.weights[0]);
  int64_t sum = 0;
  for (const int w : stage.weights) {
    const Value& weight = rules.graph.value(w);
    rules.require(weight.kind == graph::ValueKind::parameter && weight.sizes.rank() == 2 &&
                      weight.sizes[0] == first.sizes[0] && weight.dtype == dtype,
                  "weights of one number of rows");
    rules.require(stage.stacked || weight.sizes[1] == columns,
                  "weights [n, " + std::to_string(columns) + "]");
    sum += weight.sizes[1];
  }
  rules.require(!stage.stacked || sum == columns,
                "stacked weights of " + std::to_string(columns) + " columns");
}

void verify_stage(const NodeRules& rules, const ChainStage& stage, const Dims& sizes) {
  const PointwiseProgram& program = stage.epilogue;
  epilogue::verify(program);
  const size_t inputs = static_cast<size_t>(stage.products()) + stage.operands.size();
  rules.require(
      program.inputs == static_cast<int>(inputs) &&
          program.outputs.size() == static_cast<size_t>(stage.flows) + stage.stores.size(),
      "a program that fits its stage");
  verify_operands(rules, stage.operands, sizes, "operands that broadcast to the result");
  for (size_t i = 0; i < stage.stores.size(); ++i)
    verify_output(rules, stage.stores[i], sizes, program, static_cast<size_t>(stage.flows) + i);
}

bool is_same_stage(const ChainStage& a, const ChainStage& b) {
  return a.epilogue == b.epilogue && a.weights.size() == b.weights.size() &&
         a.stacked == b.stacked && a.flows == b.flows && a.operands.size() == b.operands.size();
}

RowChainSpec spec_of(const Graph& graph, const Chain& chain) {
  RowChainSpec spec = {.dtype = graph.value(chain.x).dtype, .overlaps = chain.overlaps};
  const auto tensor = [&](int v) {
    return v == graph::kNoValue ? Tensor() : graph.value(v).tensor;
  };
  spec.norm = {chain.norm.kind, chain.norm.eps, tensor(chain.norm.weight), tensor(chain.norm.bias)};
  for (const ChainStage& stage : chain.stages) {
    std::vector<Tensor> weights;
    weights.reserve(stage.weights.size());
    for (const int w : stage.weights) weights.push_back(tensor(w));
    RowChainSpec::Stage& s = add_stage(spec, std::move(weights), stage.epilogue,
                                       stage.operands.size(), stage.stores.size());
    s.stacked = stage.stacked;
    s.flows = stage.flows;
  }
  return spec;
}

}  // namespace

const OpDef& Chain::op() const { return kRowChainOp; }

std::string Chain::text() const {
  using graph::value_name;
  std::string text = "chain(" + value_name(x) + ")";
  if (overlaps) text += ", overlapped";
  if (norm.kind != Norm::none)
    text += std::string("\n    norm: ") + (norm.kind == Norm::rms ? "rms" : "layer") + "(weight " +
            value_name(norm.weight) + ", bias " + value_name(norm.bias) + ", eps " +
            graph::number_text(norm.eps) + ")";
  for (const ChainStage& stage : stages) {
    text += std::string("\n    ") + (stage.stacked ? "stacked " : "") + "product with " +
            graph::value_list(stage.weights);
    if (!stage.operands.empty()) text += ", operands " + graph::value_list(stage.operands);
    text += ": " + to_string(stage.epilogue);
    if (!stage.stores.empty()) text += ", the last " + graph::value_list(stage.stores);
  }
  return text;
}

std::vector<int> Chain::reads() const {
  std::vector<int> list = {x};
  for (const int v : {norm.weight, norm.bias})
    if (v != graph::kNoValue) list.push_back(v);
  for (const ChainStage& stage : stages) {
    list.insert(list.end(), stage.weights.begin(), stage.weights.end());
    list.insert(list.end(), stage.operands.begin(), stage.operands.end());
  }
  return list;
}

std::shared_ptr<const FusedNode> Chain::reading(int from, int to) const {
  auto copy = std::make_shared<Chain>(*this);
  for (int* v : {&copy->x, &copy->norm.weight, &copy->norm.bias}) *v = *v == from ? to : *v;
  for (ChainStage& stage : copy->stages) {
    std::ranges::replace(stage.weights, from, to);
    std::ranges::replace(stage.operands, from, to);
  }
  return copy;
}

std::vector<int> Chain::outputs(int result) const {
  std::vector<int> list = {result};
  for (const ChainStage& stage : stages)
    list.insert(list.end(), stage.stores.begin(), stage.stores.end());
  return list;
}

void Chain::verify(const NodeRules& rules) const {
  rules.require(!stages.empty() && rules.node.outputs == outputs(rules.node.outputs[0]),
                "stages, and what they store as results");
  const Value& rows = rules.graph.value(x);
  rules.require(rows.sizes.rank() > 0 && graph::row_layout(rows, rows.sizes).has_value(),
                "rows as input");
  Dims sizes = rows.sizes;
  int64_t columns = sizes[sizes.rank() - 1];
  for (const ChainStage& stage : stages) {
    verify_weights(rules, stage, columns, rows.dtype);
    columns = flowing_columns(rules.graph, stage);
    sizes[sizes.rank() - 1] = rules.graph.value(stage.weights[0]).sizes[0];
    verify_stage(rules, stage, sizes);
  }
  rules.require(stages.back().flows == 1, "one result of the last stage");
  rules.require_result(0, sizes, rows.dtype);
}

// The operands of the stage that stores the result; not its rows, which every panel of columns
// reads.
std::vector<int> Chain::written_over(const Graph& /*graph*/, const Node& /*node*/,
                                     size_t result) const {
  if (result == 0) return stages.back().operands;
  size_t before = 1;
  for (const ChainStage& stage : stages) {
    if (result >= before + stage.stores.size()) {
      before += stage.stores.size();
      continue;
    }
    const size_t i = static_cast<size_t>(stage.flows) + result - before;
    const bool is_elements = output_extents(stage.epilogue)[i] == Extent::element;
    return is_elements ? stage.operands : std::vector<int>();
  }
  return {};
}

bool Chain::takes_any_rows(const Graph& graph, const Dims& /*model*/) const {
  const auto is_weight = [&](int v) {
    return v == norm.weight || v == norm.bias ||
           std::ranges::any_of(stages, [v](const ChainStage& stage) {
             return std::ranges::find(stage.weights, v) != stage.weights.end();
           });
  };
  return !graph::is_leaf(graph.value(x)) && std::ranges::all_of(reads(), [&](int v) {
    return is_weight(v) || graph::serves_any_rows(graph, v);
  });
}

bool Chain::is_same_but_rows(const FusedNode& other) const {
  const auto* const o = dynamic_cast<const Chain*>(&other);
  return o != nullptr && norm.kind == o->norm.kind && norm.eps == o->norm.eps &&
         std::ranges::equal(stages, o->stages, is_same_stage);
}

std::vector<OperandView> Chain::views(const Graph& graph, const Node& node) const {
  Dims sizes = graph.value(x).sizes;
  std::vector<OperandView> list = {graph::view_of(graph, x, sizes)};
  for (const ChainStage& stage : stages) {
    sizes[sizes.rank() - 1] = graph.value(stage.weights[0]).sizes[0];
    for (const int v : stage.operands) list.push_back(graph::view_of(graph, v, sizes));
  }
  for (const int v : node.outputs) list.push_back(graph::view_of(graph, v, graph.value(v).sizes));
  return list;
}

std::unique_ptr<FusedKernel> Chain::make_kernel(const Graph& graph, const Node& node,
                                                const graph::KernelOptions& options) const {
  RowChainSpec spec = spec_of(graph, *this);
  spec.bits = options.bits;
  return std::make_unique<PlannedChain>(backend_of(graph.device).make_row_chain(spec),
                                        graph.value(node.outputs[0]).dtype);
}

}  // namespace epilogue::fused
