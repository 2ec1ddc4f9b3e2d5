// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <algorithm>

#include "base/units.h"
#include "core/backend.h"
#include "core/fused_call.h"
#include "core/tensor_impl.h"
#include "epilogue/ops.h"
#include "graph/print.h"
#include "ops/run_op.h"

namespace epilogue::plan {
namespace {

using graph::Chain;
using graph::ChainStage;
using graph::Graph;
using graph::Node;
using graph::Uses;
using graph::Value;
using graph::ValueKind;

constinit const OpDef kRowChainOp{.name = "epilogue::row_chain",
                                  .schema = "(Tensor x, Tensor[] others)",
                                  .doc = "products, norms and pointwise ops over blocks of rows"};
constinit const OpDef kPointwiseOp{.name = "epilogue::pointwise",
                                   .schema = "(Tensor[] inputs)",
                                   .doc = "a chain of pointwise ops"};

// A tensor over a part of the arena.
Tensor tensor_at(const Tensor& arena, int64_t offset, const Dims& sizes, DType dtype) {
  detail::Ref<detail::TensorImpl> impl(new detail::TensorImpl);
  impl->storage = arena.impl()->storage;
  impl->data = arena.impl()->data + offset;
  impl->sizes = sizes;
  impl->strides = detail::contiguous_strides(sizes);
  impl->numel = element_count(sizes);
  impl->dtype = dtype;
  impl->device = arena.device();
  return Tensor(std::move(impl));
}

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

// What the ops of a node would move one by one; what is no leaf grows with the rows.
double unfused_bytes(const Graph& graph, const Node& node, double rows_scale) {
  double leaves = 0;
  for (const int v : graph::reads(node))
    if (graph.value(v).tensor.defined()) leaves += graph::value_bytes(graph.value(v));
  return leaves + (node.eager_bytes - leaves) * rows_scale;
}

// How a row chain's threads share its rows, where they do not just take blocks of them.
std::string sharing_text(const RowChainPlan& p) {
  if (p.splits_rows) return "";
  if (p.hidden_slices == 1) return " that share the columns";
  return " that share " + std::to_string(p.hidden_slices) + " slices of the hidden columns";
}

}  // namespace

Plan::Plan(Graph graph, const Options& options)
    : graph_(std::move(graph)),
      free_rows_(options.free_rows),
      int8_weights_(options.int8_weights),
      handed_out_(std::min(options.handed_out, graph_.outputs.size())),
      is_result_(graph_.values.size(), false),
      pointers_(graph_.values.size(), nullptr),
      tensors_(graph_.values.size()) {
  if (free_rows_) captured_rows_ = graph::row_count(graph_.value(graph_.inputs[0]).sizes);
  const Uses uses(graph_);
  for (const int v : std::span(graph_.outputs).first(handed_out_)) {
    const auto root = static_cast<size_t>(memory_root(graph_, uses, v));
    is_result_[root] = graph_.values[root].kind == ValueKind::intermediate;
  }
  for (size_t v = 0; v < graph_.values.size(); ++v) {
    if (!graph_.values[v].tensor.defined()) continue;
    tensors_[v] = graph_.values[v].tensor;
    pointers_[v] = tensors_[v].data();
  }
  for (const Node& node : graph_.nodes) {
    Step& step = steps_.emplace_back();
    step.node = &node;
    step.ops = FusedOps(node.replaces);
    if (node.chain() != nullptr) add_chain(step, node);
    if (node.pointwise() != nullptr) add_program(step, node);
    has_op_steps_ = has_op_steps_ || node.call() != nullptr;
  }
  place(captured_rows_);
}

void Plan::add_view(Step& step, int value, const Dims& broadcast_to) {
  const Value& v = graph_.value(value);
  const graph::RowLayout layout = *graph::row_layout(v, broadcast_to);
  step.slots.push_back(value);
  step.views.push_back({nullptr, v.dtype, layout.row_stride, layout.col_stride});
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

Dims Plan::sizes_of(int value) const { return at_rows(graph_.value(value).sizes); }

// Captured sizes with the rows of the call.
Dims Plan::at_rows(const Dims& captured) const {
  if (!free_rows_ || leading_.empty()) return captured;
  Dims sizes = leading_;
  sizes[sizes.rank() - 1] = captured[captured.rank() - 1];
  return sizes;
}

// What a fused node's kernel works on: its result, or what that was reduced from.
Dims Plan::elements_of(const Node& node) const {
  return node.pointwise() != nullptr ? at_rows(node.pointwise()->sizes) : sizes_of(node.outputs[0]);
}

int64_t Plan::bytes_of(int value) const {
  return element_count(sizes_of(value)) *
         static_cast<int64_t>(dtype_bytes(graph_.value(value).dtype));
}

// Finds every intermediate value its place for this number of rows.
void Plan::place(int64_t rows) {
  std::vector<int64_t> bytes(graph_.values.size(), 0);
  for (size_t v = 0; v < bytes.size(); ++v)
    if (graph_.values[v].kind == ValueKind::intermediate) bytes[v] = bytes_of(static_cast<int>(v));
  memory_ = plan_memory(graph_, bytes, handed_out_);
  if (!arena_.defined() || memory_.arena_bytes > arena_.numel()) {
    arena_ = empty({memory_.arena_bytes}, DType::u8, graph_.device);
    set_memory_category(arena_, MemoryCategory::temporary);
  }
  for (size_t v = 0; v < bytes.size(); ++v) {
    if (memory_.offsets[v] == kNotInArena) continue;
    const Value& value = graph_.values[v];
    pointers_[v] = arena_.impl()->data + memory_.offsets[v];
    tensors_[v] = tensor_at(arena_, memory_.offsets[v], sizes_of(static_cast<int>(v)), value.dtype);
  }
  rows_ = rows;
  replays_.clear();
}

void Plan::bind(std::span<const Tensor> in) {
  if (free_rows_) leading_ = in[0].sizes();
  const int64_t rows = free_rows_ ? graph::row_count(leading_) : captured_rows_;
  if (rows != rows_) place(rows);
  for (size_t i = 0; i < in.size(); ++i) {
    const auto v = static_cast<size_t>(graph_.inputs[i]);
    tensors_[v] = in[i];
    pointers_[v] = in[i].data();
  }
  for (size_t v = 0; v < is_result_.size(); ++v) {
    if (!is_result_[v]) continue;
    tensors_[v] = empty(sizes_of(static_cast<int>(v)), graph_.values[v].dtype, graph_.device);
    pointers_[v] = tensors_[v].data();
  }
}

// The chains that read a cast see by its version that it was written.
void Plan::refresh_casts() {
  for (const std::shared_ptr<graph::Cast>& cast : graph_.casts) {
    if (cast->made_of == cast->from.version()) continue;
    cast->made_of = cast->from.version();
    copy_(cast->to, cast->from);
  }
}

void Plan::run(std::span<const Tensor> in, std::span<Tensor> out) {
  refresh_casts();
  bind(in);
  if (may_replay()) {
    std::vector<void*> addresses;
    for (const std::vector<int>* const list : {&graph_.inputs, &graph_.outputs})
      for (const int v : *list) addresses.push_back(data_of(v));
    replays_.run(backend_of(graph_.device), addresses, [&] { run_steps(); });
  } else {
    run_steps();
  }
  for (size_t i = 0; i < out.size(); ++i) out[i] = tensors_[static_cast<size_t>(graph_.outputs[i])];
  release_handles();
}

void Plan::run_steps() {
  for (Step& step : steps_) {
    if (step.node->call() != nullptr) {
      run_op_step(*step.node);
    } else {
      run_fused_step(step);
    }
  }
}

// Fused kernels allocate nothing once they ran; ops do. A listener wants to hear of every step.
bool Plan::may_replay() const {
  return !has_op_steps_ && !graph_.inputs.empty() && run_observer() == nullptr &&
         graph::row_count(sizes_of(graph_.inputs[0])) <= kReplayRows &&
         graph_.capabilities.records_launches;
}

// Inputs, results and views of them belong to the caller.
void Plan::release_handles() {
  for (const int v : graph_.inputs) tensors_[static_cast<size_t>(v)] = {};
  for (size_t v = 0; v < is_result_.size(); ++v)
    if (is_result_[v]) tensors_[v] = {};
  if (!has_op_steps_) return;
  for (const Node& node : graph_.nodes)
    for (const int v : node.outputs)
      if (memory_.offsets[static_cast<size_t>(v)] == kNotInArena)
        tensors_[static_cast<size_t>(v)] = {};
  op_in_.clear();
}

void Plan::run_fused_step(Step& step) {
  const Node& node = *step.node;
  for (size_t i = 0; i < step.slots.size(); ++i) step.views[i].data = data_of(step.slots[i]);
  const Dims sizes = elements_of(node);
  const int64_t rows = graph::row_count(sizes);
  const int64_t cols = sizes[sizes.rank() - 1];
  const std::span<const MatrixView> views = step.views;
  const std::span<const MatrixView> results = views.last(node.outputs.size());
  const std::span<const MatrixView> inputs = views.first(views.size() - results.size());
  const auto tensors = [&] {
    std::vector<Tensor> list;
    for (const int v : graph::reads(node)) list.push_back(tensors_[static_cast<size_t>(v)]);
    return list;
  };
  const auto notes = [&] {
    const DType dtype = graph_.value(node.outputs[0]).dtype;
    const double scale = free_rows_ && captured_rows_ > 0
                             ? static_cast<double>(rows) / static_cast<double>(captured_rows_)
                             : 1;
    FusedKernelNotes n{{},
                       node.flops * scale,
                       node_bytes(graph_, node, scale),
                       unfused_bytes(graph_, node, scale),
                       step.ops.full_names};
    if (step.chain != nullptr) {
      n.info = describe_row_chain(*step.chain, rows, step.ops.short_names, dtype);
    } else {
      n.info.name =
          fused_kernel_name(step.program->kernel_prefix(), "fused", step.ops.short_names, dtype);
      n.info.block = {rows, cols, 1};
      n.info.threads = step.program->threads(rows, cols);
    }
    return n;
  };
  const auto body = [&] {
    if (step.chain != nullptr) {
      step.chain->run(rows, inputs[0], inputs.subspan(1), results);
    } else {
      step.program->run(rows, cols, inputs, results);
    }
  };
  const OpDef& op = step.chain != nullptr ? kRowChainOp : kPointwiseOp;
  // Observers get the first result alone.
  run_fused({op, tensors, notes}, {&tensors_[static_cast<size_t>(node.outputs[0])], 1}, body);
}

void Plan::run_op_step(const Node& node) {
  const graph::OpCall& call = *node.call();
  op_in_.clear();
  for (const int v : call.inputs)
    op_in_.push_back(v == graph::kNoValue ? Tensor() : tensors_[static_cast<size_t>(v)]);
  Outputs out;
  const bool writes = call.op->kind == OpKind::inplace;
  if (writes || call.op->kind == OpKind::compute) {
    for (const int v : node.outputs) out.push_back(tensors_[static_cast<size_t>(v)]);
    if (writes) op_in_[0] = out[0];
    return run_op_into(*call.op, op_in_, call.attrs, out.span());
  }
  out = run_op(*call.op, op_in_, call.attrs);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const auto v = static_cast<size_t>(node.outputs[i]);
    tensors_[v] = out[i];
    pointers_[v] = out[i].data();
  }
}

bool Plan::tune(const RowChainTuning& tuning) {
  bool any = false;
  for (Step& step : steps_) any = (step.chain != nullptr && step.chain->tune(tuning)) || any;
  return any;
}

bool Plan::owns(const Tensor& t) const {
  return arena_.defined() && t.defined() && t.impl()->storage.get() == arena_.impl()->storage.get();
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
