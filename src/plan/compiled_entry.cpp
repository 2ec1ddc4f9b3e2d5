// SPDX-License-Identifier: Apache-2.0
#include "plan/compiled_entry.h"

#include <algorithm>

#include "core/observer.h"
#include "plan/free_rows.h"
#include "plan/split_graph.h"

namespace epilogue::plan {
namespace {

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
    more.push_back(same < i ? more[same] : empty(sizes, in[i].dtype(), in[i].device()));
  }
  return more;
}

// Whether the function gives this plan for these inputs, which have other rows.
bool gives_plan(const Capture& capture, std::span<const Tensor> in, const graph::Graph& planned,
                const CompileOptions& options) {
  graph::Graph other = capture(in).graph;
  passes::run_pipeline(other, pipeline_options(options));
  return same_but_rows(planned, other);
}

// Whether it may give the same plan for all numbers of rows.
bool rows_are_free(const Capture& capture, std::span<const Tensor> in, const graph::Graph& planned,
                   const CompileOptions& options) {
  if (!options.dynamic_rows || !rows_may_be_free(planned)) return false;
  try {
    return gives_plan(capture, with_more_rows(in), planned, options);
  } catch (const std::exception&) {
    return false;  // the function wants this number of rows
  }
}

// Numbers of rows that an entry remembers.
constexpr size_t kMostRowsKnown = 4096;

passes::Saving saving_of(Saved saved) {
  if (saved == Saved::automatic) return passes::Saving::automatic;
  return saved == Saved::save ? passes::Saving::save : passes::Saving::recompute;
}

passes::Packing packing_of(Packed packed) {
  if (packed == Packed::automatic) return passes::Packing::automatic;
  return packed == Packed::always ? passes::Packing::always : passes::Packing::never;
}

}  // namespace

passes::PipelineOptions pipeline_options(const CompileOptions& options) {
  return {options.skip, options.collapse_linears, false, saving_of(options.saved),
          packing_of(options.packed)};
}

Entry::Entry(const Capture& capture, std::span<const Tensor> in, const CompileOptions& options,
             bool keeps_gradients)
    : capture_(capture),
      options_(options),
      keeps_gradients_(keeps_gradients),
      captured_(capture(in)) {
  graph::verify(captured());
  note_guards(in);
  if (has_backward()) graph::mark_backward(captured_.graph, captured_.forward_results);
  graph::Graph graph = captured();
  passes_ = passes::run_pipeline(graph, pipeline_options(options));
  if (captured_.runs_backward_later) {
    SplitGraph parts = split(graph, captured_.forward_results);
    plan_ = std::make_unique<Plan>(std::move(parts.forward), Plan::Options{});
    backward_plan_ = std::make_shared<Plan>(std::move(parts.backward), Plan::Options{});
    backward_inputs_ = std::move(parts.inputs);
    return;
  }
  // Gradients are those of the weights as they are.
  const bool inference = !has_backward();
  const bool free_rows = inference && rows_are_free(capture, in, graph, options);
  plan_ = std::make_unique<Plan>(std::move(graph),
                                 Plan::Options{.free_rows = free_rows,
                                               .int8_weights = inference && options.int8_weights,
                                               .handed_out = handed_out()});
  if (free_rows) fits_[in[0].sizes()] = true;
}

void Entry::note_guards(std::span<const Tensor> in) {
  autocast_ = autocast_state().regions;
  for (size_t i = 0; i < in.size(); ++i)
    inputs_.push_back({in[i].dtype(), in[i].device(), in[i].sizes(), in[i].strides(),
                       first_same(in, i), in[i].requires_grad()});
  for (const graph::Value& value : captured().values)
    if (value.kind == graph::ValueKind::parameter)
      parameters_.push_back({value.tensor, value.tensor.data(), value.dtype, value.sizes,
                             value.strides, value.tensor.version(), value.tensor.requires_grad()});
}

bool Entry::accepts_input(std::span<const Tensor> in, size_t i) const {
  const InputGuard& guard = inputs_[i];
  const Tensor& t = in[i];
  if (!t.defined() || t.dtype() != guard.dtype || first_same(in, i) != guard.same_as ||
      !(t.device() == guard.device) ||
      (guards_gradients() && t.requires_grad() != guard.requires_grad))
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

size_t Entry::HashOfSizes::operator()(const Dims& sizes) const {
  size_t hash = 0;
  for (const int64_t size : sizes) hash = hash * 1'000'003 + static_cast<size_t>(size);
  return hash;
}

// A function may ask for its input's sizes and do something else: one capture cannot show that.
bool Entry::fits_rows(std::span<const Tensor> in) {
  if (const auto known = fits_.find(in[0].sizes()); known != fits_.end()) return known->second;
  if (fits_.size() == kMostRowsKnown) fits_.clear();
  const bool fits = gives_plan(capture_, in, plan_->graph(), options_);
  return fits_[in[0].sizes()] = fits;
}

bool Entry::accepts(std::span<const Tensor> in) {
  if (in.size() != inputs_.size() || !(autocast_state().regions == autocast_) ||
      captured_.grad_mode.value_or(thread_state().grad_enabled) != thread_state().grad_enabled)
    return false;
  for (size_t i = 0; i < in.size(); ++i)
    if (!accepts_input(in, i)) return false;
  return std::all_of(parameters_.begin(), parameters_.end(),
                     [&](const ParameterGuard& p) {
                       return p.tensor.data() == p.data && p.tensor.dtype() == p.dtype &&
                              p.tensor.sizes() == p.sizes && p.tensor.strides() == p.strides &&
                              (!options_.collapse_linears || p.tensor.version() == p.version) &&
                              (!guards_gradients() || p.tensor.requires_grad() == p.requires_grad);
                     }) &&
         (!plan_->has_free_rows() || fits_rows(in));
}

int64_t Entry::kernels() const {
  return plan_->kernels() + (backward_plan_ != nullptr ? backward_plan_->kernels() : 0);
}

int64_t Entry::intermediate_bytes() const {
  return plan_->memory().arena_bytes +
         (backward_plan_ != nullptr ? backward_plan_->memory().arena_bytes : 0);
}

// Plans run one after the other, in the same scratch memory.
int64_t Entry::scratch_bytes() const {
  const int64_t backward = backward_plan_ != nullptr ? backward_plan_->scratch_bytes() : 0;
  return std::max(plan_->scratch_bytes(), backward);
}

double Entry::moved_bytes() const {
  return plan_->moved_bytes() + (backward_plan_ != nullptr ? backward_plan_->moved_bytes() : 0);
}

int64_t Entry::eager_kernels() const {
  return std::count_if(captured().nodes.begin(), captured().nodes.end(),
                       [](const graph::Node& node) { return !node.replaces.empty(); });
}

double Entry::eager_moved_bytes() const {
  double bytes = 0;
  for (const graph::Node& node : captured().nodes) bytes += node.eager_bytes;
  return bytes;
}

}  // namespace epilogue::plan
