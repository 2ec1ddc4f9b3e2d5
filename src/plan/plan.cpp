// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <algorithm>
#include <set>

#include "plan/plan_frame.h"

namespace epilogue::plan {

using graph::Graph;
using graph::Node;
using graph::Uses;
using graph::Value;
using graph::ValueKind;

Plan::Plan(Graph graph, const Options& options)
    : graph_(std::move(graph)),
      free_rows_(options.free_rows),
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
    if (node.fused() != nullptr) add_kernel(step, options.kernels);
    has_op_steps_ = has_op_steps_ || node.fused() == nullptr;
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

void Plan::add_kernel(Step& step, const graph::KernelOptions& options) {
  const graph::FusedNode& fused = *step.node->fused();
  step.kernel = fused.make_kernel(graph_, *step.node, options);
  step.elements = fused.elements(graph_, *step.node);
  for (const graph::OperandView& operand : fused.views(graph_, *step.node)) {
    step.slots.push_back(operand.value);
    step.views.push_back(operand.view);
  }
}

bool Plan::tune(const KernelTuning& tuning) {
  bool any = false;
  for (Step& step : steps_) any = (step.kernel != nullptr && step.kernel->tune(tuning)) || any;
  return any;
}

int64_t Plan::kernels() const {
  int64_t n = 0;
  for (const Step& step : steps_) {
    const graph::OpCall* const call = step.node->call();
    if (call != nullptr && call->op->kind == OpKind::view) continue;
    n += step.kernel != nullptr ? step.kernel->launches() : 1;
  }
  return n;
}

double Plan::moved_bytes() const {
  double bytes = 0;
  for (const Node& node : graph_.nodes)
    if (node.fused() != nullptr) {
      bytes += node.fused()->moved_bytes(graph_, node, 1);
    } else {
      bytes += graph::is_draw(node) ? graph::value_bytes(graph_.value(node.outputs[0]))
                                    : node.eager_bytes;
    }
  return bytes;
}

int64_t Plan::scratch_bytes() const {
  int64_t bytes = 0;
  for (const Step& step : steps_)
    if (step.kernel != nullptr)
      bytes = std::max(bytes, step.kernel->scratch_bytes(graph::row_count(step.elements)));
  return bytes;
}

std::string Plan::describe_kernels() const {
  std::string text;
  for (const Step& step : steps_) {
    const Node& node = *step.node;
    if (node.call() != nullptr && node.call()->op->kind == OpKind::view) continue;
    text += "  " + op_list(node.replaces, ", ") + ": " +
            (step.kernel != nullptr ? step.kernel->describe(graph::row_count(step.elements))
                                    : "as eager runs it");
    text += "\n";
  }
  return text;
}

}  // namespace epilogue::plan
