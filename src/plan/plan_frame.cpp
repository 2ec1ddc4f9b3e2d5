// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_frame.h"

#include <algorithm>
#include <mutex>

#include "core/backend.h"
#include "core/tensor_impl.h"
#include "epilogue/ops.h"
#include "ops/run_op.h"

namespace epilogue::plan {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;
using graph::ValueKind;

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

// What the ops of a node would move one by one; what is no leaf grows with the rows.
double unfused_bytes(const Graph& graph, const Node& node, double rows_scale) {
  double leaves = 0;
  for (const int v : graph::reads(node))
    if (graph.value(v).tensor.defined()) leaves += graph::value_bytes(graph.value(v));
  return leaves + (node.eager_bytes - leaves) * rows_scale;
}

}  // namespace

Frame::Frame(const Plan& plan)
    : plan_(plan),
      graph_(plan.graph()),
      memory_(plan.memory()),
      pointers_(graph_.values.size(), nullptr),
      tensors_(graph_.values.size()) {
  for (size_t v = 0; v < graph_.values.size(); ++v) {
    if (!graph_.values[v].tensor.defined()) continue;
    tensors_[v] = graph_.values[v].tensor;
    pointers_[v] = tensors_[v].data();
  }
  for (const Plan::Step& step : plan.steps()) views_.push_back(step.views);
}

Dims Frame::sizes_of(int value) const { return at_rows(graph_.value(value).sizes); }

// Captured sizes with the rows of the call.
Dims Frame::at_rows(const Dims& captured) const {
  const bool has_free_rows = plan_.has_free_rows() && !leading_.empty();
  // One variable, made where the caller wants it: a copy would read whole vectors right after the
  // store of one size, and wait for that.
  Dims sizes = has_free_rows ? leading_ : captured;
  if (has_free_rows) sizes[sizes.rank() - 1] = captured[captured.rank() - 1];
  return sizes;
}

int64_t Frame::bytes_of(int value) const {
  return element_count(sizes_of(value)) *
         static_cast<int64_t>(dtype_bytes(graph_.value(value).dtype));
}

// Finds every intermediate value its place for this number of rows.
void Frame::place(int64_t rows) {
  if (rows != plan_.captured_rows() || rows_ >= 0) {
    std::vector<int64_t> bytes(graph_.values.size(), 0);
    for (size_t v = 0; v < bytes.size(); ++v)
      if (graph_.values[v].kind == ValueKind::intermediate)
        bytes[v] = bytes_of(static_cast<int>(v));
    memory_ = plan_memory(graph_, bytes, plan_.handed_out());
  }
  if (!arena_.defined() || memory_.arena_bytes > arena_.numel()) {
    arena_ = empty({memory_.arena_bytes}, DType::u8, graph_.device);
    set_memory_category(arena_, MemoryCategory::temporary);
  }
  for (size_t v = 0; v < graph_.values.size(); ++v) {
    if (memory_.offsets[v] == kNotInArena) continue;
    const Value& value = graph_.values[v];
    pointers_[v] = arena_.impl()->data + memory_.offsets[v];
    tensors_[v] = tensor_at(arena_, memory_.offsets[v], sizes_of(static_cast<int>(v)), value.dtype);
  }
  rows_ = rows;
  plan_.held_bytes_.store(memory_.arena_bytes, std::memory_order_relaxed);
  replays_.clear();
}

void Frame::bind(std::span<const Tensor> in, std::span<const Tensor> into) {
  refresh_casts();
  if (plan_.has_free_rows()) leading_ = in[0].sizes();
  const int64_t rows = plan_.has_free_rows() ? graph::row_count(leading_) : plan_.captured_rows();
  if (rows != rows_) place(rows);
  in_ = in;
  for (size_t i = 0; i < in.size(); ++i)
    pointers_[static_cast<size_t>(graph_.inputs[i])] = in[i].data();
  for (size_t i = 0; i < into.size(); ++i)
    if (std::ranges::binary_search(plan_.results(), graph_.outputs[i]))
      bind_result(graph_.outputs[i], into[i]);
  for (const int v : plan_.results())
    if (!tensor_of(v).defined())
      bind_result(v, empty(sizes_of(v), graph_.value(v).dtype, graph_.device));
}

void Frame::bind_result(int value, Tensor to) {
  const auto v = static_cast<size_t>(value);
  if (tensors_[v].defined()) return;  // two results are one value: the second is copied
  pointers_[v] = to.data();
  tensors_[v] = std::move(to);
}

// A call's inputs are looked up where the caller has them: a handle would count twice per call.
const Tensor& Frame::tensor_of(int value) const {
  const int input = plan_.input_of(value);
  return input >= 0 ? in_[static_cast<size_t>(input)] : tensors_[static_cast<size_t>(value)];
}

// The chains that read a cast see by its version that it was written.
void Frame::refresh_casts() {
  for (const std::shared_ptr<graph::Cast>& cast : graph_.casts) cast->refresh();
}

// Results and views of inputs or results belong to the caller.
struct Frame::Release {
  Frame& frame;
  ~Release() { frame.release_handles(); }
};

void Frame::run(std::span<const Tensor> in, std::span<Tensor> out) {
  const Release release{*this};
  bind(in, {});
  compute();
  for (size_t i = 0; i < out.size(); ++i) {
    const int v = graph_.outputs[i];
    if (plan_.gives_away(i)) {
      out[i] = std::move(tensors_[static_cast<size_t>(v)]);
    } else {
      out[i] = tensor_of(v);
    }
  }
}

void Frame::run_into(std::span<const Tensor> in, std::span<const Tensor> out) {
  const Release release{*this};
  bind(in, out);
  compute();
  for (size_t i = 0; i < out.size(); ++i) {
    const Tensor& result = tensor_of(graph_.outputs[i]);
    if (out[i].is_same(result)) {
      out[i].increment_version();
    } else {
      copy_(out[i], result);  // an input, a parameter, a view, or another result too
    }
  }
}

void Frame::compute() {
  if (!may_replay()) return run_steps();
  std::vector<void*> addresses;
  for (const std::vector<int>* const list : {&graph_.inputs, &graph_.outputs})
    for (const int v : *list) addresses.push_back(data_of(v));
  replays_.run(backend_of(graph_.device), addresses, [&] { run_steps(); });
}

void Frame::run_steps() {
  for (size_t i = 0; i < plan_.steps().size(); ++i) {
    if (const Node& node = *plan_.steps()[i].node; node.fused() == nullptr) {
      run_op_step(node);
    } else {
      run_fused_step(i);
    }
  }
}

// Fused kernels allocate nothing once they ran; ops do. A listener wants to hear of every step.
bool Frame::may_replay() const {
  return !plan_.has_op_steps() && !graph_.inputs.empty() && run_observer() == nullptr &&
         graph::row_count(sizes_of(graph_.inputs[0])) <= graph_.capabilities.most_recorded_rows;
}

void Frame::release_handles() {
  in_ = {};
  for (const int v : plan_.results()) tensors_[static_cast<size_t>(v)] = {};
  if (!plan_.has_op_steps()) return;
  for (const Node& node : graph_.nodes)
    for (const int v : node.outputs)
      if (memory_.offsets[static_cast<size_t>(v)] == kNotInArena)
        tensors_[static_cast<size_t>(v)] = {};
  op_in_.clear();
}

FusedKernelNotes Frame::notes_of(const Plan::Step& step, int64_t rows) const {
  const Node& node = *step.node;
  const double scale = plan_.has_free_rows() && plan_.captured_rows() > 0
                           ? static_cast<double>(rows) / static_cast<double>(plan_.captured_rows())
                           : 1;
  return {step.kernel->info(rows, step.ops.short_names), node.flops * scale,
          node.fused()->moved_bytes(graph_, node, scale), unfused_bytes(graph_, node, scale),
          step.ops.full_names};
}

void Frame::run_fused_step(size_t index) {
  const Plan::Step& step = plan_.steps()[index];
  const Node& node = *step.node;
  std::vector<MatrixView>& all = views_[index];
  for (size_t i = 0; i < step.slots.size(); ++i) all[i].data = data_of(step.slots[i]);
  const int64_t rows = graph::row_count(at_rows(step.elements));
  const std::span<const MatrixView> views = all;
  const std::span<const MatrixView> results = views.last(node.outputs.size());
  const std::span<const MatrixView> inputs = views.first(views.size() - results.size());
  const auto tensors = [&] {
    std::vector<Tensor> list;
    for (const int v : graph::reads(node)) list.push_back(tensor_of(v));
    return list;
  };
  const auto notes = [&] { return notes_of(step, rows); };
  const auto body = [&] { step.kernel->run(rows, inputs, results); };
  // Observers get the first result alone.
  run_fused({node.fused()->op(), tensors, notes},
            {&tensors_[static_cast<size_t>(node.outputs[0])], 1}, body);
}

void Frame::run_op_step(const Node& node) {
  const graph::OpCall& call = *node.call();
  op_in_.clear();
  for (const int v : call.inputs) op_in_.push_back(v == graph::kNoValue ? Tensor() : tensor_of(v));
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

bool Frame::owns(const Tensor& t) const {
  return arena_.defined() && t.defined() && t.impl()->storage.get() == arena_.impl()->storage.get();
}

}  // namespace epilogue::plan
