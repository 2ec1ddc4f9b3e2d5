// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <algorithm>
#include <set>

#include "base/units.h"
#include "core/backend.h"
#include "core/fused_call.h"
#include "graph/print.h"
#include "plan/plan_frame.h"

namespace epilogue::plan {
namespace {

using graph::Chain;
using graph::ChainStage;
using graph::Graph;
using graph::Node;
using graph::Uses;
using graph::Value;
using graph::ValueKind;

RowChainSpec spec_of(const Graph& graph, const Chain& chain) {
  RowChainSpec spec;
  spec.dtype = graph.value(chain.x).dtype;
  spec.overlaps = chain.overlaps;
  const auto tensor = [&](int v) {
    return v == graph::kNoValue ? Tensor() : graph.value(v).tensor;
  };
  spec.norm = {chain.norm.kind, chain.norm.eps, tensor(chain.norm.weight), tensor(chain.norm.bias)};
  for (const ChainStage& stage : chain.stages) {
    std::vector<Tensor> weights;
    for (const int w : stage.weights) weights.push_back(tensor(w));
    RowChainSpec::Stage& s = add_stage(spec, std::move(weights), stage.epilogue,
                                       stage.operands.size(), stage.stores.size());
    s.stacked = stage.stacked;
    s.flows = stage.flows;
  }
  return spec;
}

// How a row chain's threads share its rows, where they do not just take blocks of them.
std::string sharing_text(const RowChainPlan& p) {
  if (p.splits_rows) return "";
  if (p.hidden_slices == 1) return " that share the columns";
  return " that share " + std::to_string(p.hidden_slices) + " slices of the hidden columns";
}

}  // namespace

// Bytes that a fused node's kernel moves, each operand once; what is no leaf grows with the rows.
double node_bytes(const Graph& graph, const Node& node, double rows_scale) {
  double bytes = 0;
  const auto add = [&](int v) {
    const Value& value = graph.value(v);
    bytes += graph::value_bytes(value) * (value.tensor.defined() ? 1 : rows_scale);
  };
  std::vector<int> list = graph::reads(node);
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  for (const int v : list) add(v);
  for (const int v : node.outputs) add(v);
  return bytes;
}

Plan::Plan(Graph graph, const Options& options)
    : graph_(std::move(graph)),
      free_rows_(options.free_rows),
      int8_weights_(options.int8_weights),
      handed_out_(std::min(options.handed_out, graph_.outputs.size())),
      input_of_(graph_.values.size(), -1) {
  if (free_rows_) captured_rows_ = graph::row_count(graph_.value(graph_.inputs[0]).sizes);
  for (size_t i = 0; i < graph_.inputs.size(); ++i)
    input_of_[static_cast<size_t>(graph_.inputs[i])] = static_cast<int>(i);
  const Uses uses(graph_);
  std::set<int> results;
  for (const int v : std::span(graph_.outputs).first(handed_out_))
    if (const int root = memory_root(graph_, uses, v);
        graph_.value(root).kind == ValueKind::intermediate)
      results.insert(root);
  results_.assign(results.begin(), results.end());
  for (size_t i = 0; i < graph_.outputs.size(); ++i) {
    const auto later = graph_.outputs.begin() + static_cast<ptrdiff_t>(i) + 1;
    const int v = graph_.outputs[i];
    gives_away_.push_back(results.contains(v) &&
                          std::find(later, graph_.outputs.end(), v) == graph_.outputs.end());
  }
  for (const Node& node : graph_.nodes) {
    Step& step = steps_.emplace_back();
    step.node = &node;
    step.ops = FusedOps(node.replaces);
    if (node.chain() != nullptr) add_chain(step, node);
    if (node.pointwise() != nullptr) add_program(step, node);
    has_op_steps_ = has_op_steps_ || node.call() != nullptr;
  }
  std::vector<int64_t> bytes(graph_.values.size(), 0);
  for (size_t v = 0; v < bytes.size(); ++v)
    if (const Value& value = graph_.values[v]; value.kind == ValueKind::intermediate)
      bytes[v] = element_count(value.sizes) * static_cast<int64_t>(dtype_bytes(value.dtype));
  memory_ = plan_memory(graph_, bytes, handed_out_);
  held_bytes_ = memory_.arena_bytes;
}

Plan::~Plan() = default;

void Plan::run(std::span<const Tensor> in, std::span<Tensor> out) const {
  frames_.borrow([this] { return std::make_unique<Frame>(*this); })->run(in, out);
}

void Plan::run_into(std::span<const Tensor> in, std::span<const Tensor> out) const {
  frames_.borrow([this] { return std::make_unique<Frame>(*this); })->run_into(in, out);
}

bool Plan::owns(const Tensor& t) const {
  return frames_.any([&](const Frame& frame) { return frame.owns(t); });
}

void Plan::add_view(Step& step, int value, const Dims& broadcast_to) {
  const Value& v = graph_.value(value);
  const graph::RowLayout layout =
      *graph::row_layout(v, broadcast_to, graph_.capabilities.programs_repeat_rows);
  step.slots.push_back(value);
  step.views.push_back({nullptr, v.dtype, layout.row_stride, layout.col_stride, layout.levels});
}

void Plan::add_chain(Step& step, const Node& node) {
  const Chain& chain = *node.chain();
  RowChainSpec spec = spec_of(graph_, chain);
  spec.int8_weights = int8_weights_;
  step.chain = backend_of(graph_.device).make_row_chain(spec);
  Dims sizes = graph_.value(chain.x).sizes;
  add_view(step, chain.x, sizes);
  for (const ChainStage& stage : chain.stages) {
    sizes[sizes.rank() - 1] = graph_.value(stage.weights[0]).sizes[0];
    for (const int v : stage.operands) add_view(step, v, sizes);
  }
  for (const int v : node.outputs) add_view(step, v, graph_.value(v).sizes);
}

void Plan::add_program(Step& step, const Node& node) {
  step.program = backend_of(graph_.device).make_program(node.pointwise()->program);
  const graph::Pointwise& p = *node.pointwise();
  for (const int v : p.inputs) add_view(step, v, p.sizes);
  const std::vector<Extent> extent = output_extents(p.program);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    add_view(step, node.outputs[i], graph_.value(node.outputs[i]).sizes);
    // One number per row, one after the other, whatever their sizes are.
    if (extent[i] == Extent::row) step.views.back().row_stride = step.views.back().col_stride = 1;
  }
}

bool Plan::tune(const RowChainTuning& tuning) {
  bool any = false;
  for (Step& step : steps_) any = (step.chain != nullptr && step.chain->tune(tuning)) || any;
  return any;
}

int64_t Plan::kernels() const {
  int64_t n = 0;
  for (const Step& step : steps_) {
    const graph::OpCall* const call = step.node->call();
    if (call != nullptr && call->op->kind == OpKind::view) continue;
    n += step.chain != nullptr ? step.chain->launches() : 1;
  }
  return n;
}

double Plan::moved_bytes() const {
  double bytes = 0;
  for (const Node& node : graph_.nodes)
    bytes += node.call() != nullptr && !graph::is_draw(node) ? node.eager_bytes
                                                             : node_bytes(graph_, node, 1);
  return bytes;
}

int64_t Plan::scratch_bytes() const {
  int64_t bytes = 0;
  for (const Step& step : steps_) {
    if (step.chain == nullptr) continue;
    const Dims& sizes = graph_.value(step.node->outputs[0]).sizes;
    bytes = std::max(bytes, step.chain->plan(graph::row_count(sizes)).scratch_bytes);
  }
  return bytes;
}

std::string Plan::describe_kernels() const {
  std::string text;
  for (const Step& step : steps_) {
    const Node& node = *step.node;
    const Dims& sizes = graph_.value(node.outputs[0]).sizes;
    if (node.call() != nullptr && node.call()->op->kind == OpKind::view) continue;
    text += "  " + op_list(node.replaces, ", ") + ": ";
    if (step.chain != nullptr && !step.chain->choices().empty()) {
      text += step.chain->kernel_name() + ": " + step.chain->choices();
    } else if (step.chain != nullptr) {
      const RowChainPlan p = step.chain->plan(graph::row_count(sizes));
      text += step.chain->kernel_name() + ", " + std::to_string(p.blocks) + " x " +
              std::to_string(p.block_rows) + " rows on " + std::to_string(p.threads) +
              (p.threads == 1 ? " thread" : " threads") + sharing_text(p) + ", " +
              format_bytes(static_cast<double>(p.scratch_bytes)) + " of scratch";
    } else if (step.program != nullptr) {
      text += step.program->kernel_prefix() + "_fused";
    } else {
      text += "as eager runs it";
    }
    text += "\n";
  }
  return text;
}

}  // namespace epilogue::plan
