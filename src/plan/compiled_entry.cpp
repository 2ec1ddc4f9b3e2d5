// SPDX-License-Identifier: Apache-2.0
#include "plan/compiled_entry.h"

#include <algorithm>

#include "core/observer.h"
#include "plan/free_rows.h"

namespace epilogue::plan {
namespace {

passes::PipelineOptions pipeline_options(const CompileOptions& options) {
  return {options.skip, options.collapse_linears, false};
}

AutocastState::Region cpu_autocast() {
  return autocast_state().regions[static_cast<size_t>(DeviceType::cpu)];
}

// The first input that is the same tensor; itself where none is.
int first_same(std::span<const Tensor> in, size_t i) {
  size_t j = 0;
  while (!in[j].is_same(in[i])) ++j;
  return static_cast<int>(j);
}

// Inputs like these with one row more.
std::vector<Tensor> with_more_rows(std::span<const Tensor> in) {
  std::vector<Tensor> more;
  for (size_t i = 0; i < in.size(); ++i) {
    Dims sizes = in[i].sizes();
    if (sizes.rank() > 1) ++sizes[0];
    const auto same = static_cast<size_t>(first_same(in, i));
    more.push_back(same < i ? more[same] : empty(sizes, in[i].dtype()));
  }
  return more;
}

// Whether the function gives the same plan for another number of rows.
bool rows_are_free(const graph::Function& function, std::span<const Tensor> in,
                   const graph::Graph& planned, const CompileOptions& options) {
  if (!options.dynamic_rows || !rows_may_be_free(planned)) return false;
  try {
    graph::Graph other = graph::capture(function, with_more_rows(in));
    passes::run_pipeline(other, pipeline_options(options));
    return same_but_rows(planned, other);
  } catch (const Error&) {
    return false;  // the function wants this number of rows
  }
}

}  // namespace

Entry::Entry(const graph::Function& function, std::span<const Tensor> in,
             const CompileOptions& options) {
  captured_ = graph::capture(function, in);
  graph::verify(captured_);
  note_guards(in, options.collapse_linears);
  require_no_gradients(in);
  graph::Graph graph = captured_;
  passes_ = passes::run_pipeline(graph, pipeline_options(options));
  const bool free_rows = rows_are_free(function, in, graph, options);
  plan_ = std::make_unique<Plan>(
      std::move(graph),
      Plan::Options{.free_rows = free_rows, .int8_weights = options.int8_weights});
}

void Entry::note_guards(std::span<const Tensor> in, bool weights_are_frozen) {
  weights_are_frozen_ = weights_are_frozen;
  autocast_ = cpu_autocast();
  for (size_t i = 0; i < in.size(); ++i)
    inputs_.push_back({in[i].dtype(), in[i].sizes(), in[i].strides(), first_same(in, i)});
  for (const graph::Value& value : captured_.values)
    if (value.kind == graph::ValueKind::parameter)
      parameters_.push_back({value.tensor, value.tensor.data(), value.dtype, value.sizes,
                             value.strides, value.tensor.version()});
}

bool Entry::accepts_input(std::span<const Tensor> in, size_t i) const {
  const InputGuard& guard = inputs_[i];
  const Tensor& t = in[i];
  if (!t.defined() || t.dtype() != guard.dtype || first_same(in, i) != guard.same_as ||
      t.device().type != DeviceType::cpu)
    return false;
  if (!plan_->has_free_rows()) return t.sizes() == guard.sizes && t.strides() == guard.strides;
  // Leading sizes as the first input has them, whatever they are.
  const Dims& model = in[0].sizes();
  const int last = guard.sizes.rank() - 1;
  if (!t.is_contiguous() || t.dim() != guard.sizes.rank() || model.rank() != guard.sizes.rank() ||
      t.sizes()[last] != guard.sizes[last])
    return false;
  return std::equal(t.sizes().begin(), t.sizes().begin() + last, model.begin());
}

bool Entry::accepts(std::span<const Tensor> in) const {
  if (in.size() != inputs_.size() || !(cpu_autocast() == autocast_)) return false;
  for (size_t i = 0; i < in.size(); ++i)
    if (!accepts_input(in, i)) return false;
  return std::all_of(parameters_.begin(), parameters_.end(), [&](const ParameterGuard& p) {
    return p.tensor.data() == p.data && p.tensor.dtype() == p.dtype &&
           p.tensor.sizes() == p.sizes && p.tensor.strides() == p.strides &&
           (!weights_are_frozen_ || p.tensor.version() == p.version);
  });
}

void Entry::require_no_gradients(std::span<const Tensor> in) const {
  if (!thread_state().grad_enabled) return;
  const bool wanted =
      std::any_of(in.begin(), in.end(), [](const Tensor& t) { return t.requires_grad(); }) ||
      std::any_of(parameters_.begin(), parameters_.end(),
                  [](const ParameterGuard& p) { return p.tensor.requires_grad(); });
  if (wanted)
    throw Error(
        "[compile] expected no_grad or tensors without requires_grad: compiled functions have no "
        "backward pass yet");
}

int64_t Entry::eager_kernels() const {
  return std::count_if(captured_.nodes.begin(), captured_.nodes.end(),
                       [](const graph::Node& node) { return !node.replaces.empty(); });
}

double Entry::eager_moved_bytes() const {
  double bytes = 0;
  for (const graph::Node& node : captured_.nodes) bytes += node.eager_bytes;
  return bytes;
}

}  // namespace epilogue::plan
