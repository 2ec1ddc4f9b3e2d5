// SPDX-License-Identifier: Apache-2.0

#include "plan/compiled_entry.h"

#include <algorithm>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/median.h"
#include "core/observer.h"
#include "core/tensor_impl.h"
#include "epilogue/autograd.h"
#include "graph/fused_node.h"
#include "graph/print.h"
#include "plan/choice_store.h"
#include "plan/plan.h"

namespace epilogue::plan {

namespace {

struct Contender {
  std::string name;
  Plan* plan;
  KernelTuning tuning;
};

constexpr int64_t kBudgetNs = 300'000'000;
constexpr int kFewestRounds = 3;
constexpr int kMostRounds = 15;
// Calls of one turn together: long against the clock and a cache that another one left.
constexpr int64_t kTurnNs = 500'000;
constexpr int kMostCalls = 1000;
constexpr double kWorthIt = 0.98;

// Runs each in interleaved rounds within some hundred milliseconds (three rounds at least) and
// names the one with the least median; the first one unless another is more than 2 % faster, so
// that noise does not choose. `before_call` runs before every call and is not timed.
Choice fastest(std::span<const Contender> contenders, std::span<const Tensor> in,
               std::span<Tensor> out, const std::function<void()>& before_call) {
  const NoGrad no_grad;
  const auto call_ns = [&](const Contender& c) {
    before_call();
    const int64_t begin = monotonic_ns();
    c.plan->run(in, out);
    return static_cast<double>(monotonic_ns() - begin);
  };
  std::vector<std::vector<double>> ns(contenders.size());
  std::vector<int> calls(contenders.size(), 1);
  const int64_t end = monotonic_ns() + kBudgetNs;
  for (int round = 0; round < kMostRounds && (round < kFewestRounds || monotonic_ns() < end);
       ++round)
    for (size_t i = 0; i < contenders.size(); ++i) {
      const Contender& c = contenders[i];
      c.plan->tune(c.tuning);
      // The first call plans, packs and warms caches.
      call_ns(c);
      if (round == 0)
        calls[i] = std::clamp(static_cast<int>(kTurnNs / std::max(call_ns(c), 1.0)), 1, kMostCalls);
      double sum = 0;
      for (int k = 0; k < calls[i]; ++k) sum += call_ns(c);
      ns[i].push_back(sum / calls[i]);
    }
  Choice choice;
  size_t best = 0;
  std::vector<double> medians;
  for (size_t i = 0; i < contenders.size(); ++i) {
    medians.push_back(median_of(ns[i]));
    choice.median_us.emplace_back(contenders[i].name, medians[i] * 1e-3);
    if (medians[i] < medians[best]) best = i;
  }
  if (medians[best] > kWorthIt * medians[0]) best = 0;
  choice.name = contenders[best].name;
  return choice;
}

using graph::Graph;
using graph::Node;
using graph::Value;
using graph::ValueKind;

int64_t columns(const Dims& sizes) { return sizes.rank() == 0 ? 1 : sizes[sizes.rank() - 1]; }

// Two leaves of two captures that are the same memory.
bool same_leaf(const Value& a, const Value& b) {
  const bool numbers = a.kind == ValueKind::constant && b.kind == ValueKind::constant;
  if (a.kind != b.kind || a.dtype != b.dtype || !(a.sizes == b.sizes)) return false;
  if (numbers) return a.tensor.to_vector() == b.tensor.to_vector();
  return a.strides == b.strides && a.tensor.data() == b.tensor.data();
}

bool same_value(const Graph& a, const Graph& b, int va, int vb) {
  if ((va == graph::kNoValue) != (vb == graph::kNoValue)) return false;
  if (va == graph::kNoValue) return true;
  const Value& x = a.value(va);
  const Value& y = b.value(vb);
  if (graph::is_leaf(x) || graph::is_leaf(y)) return same_leaf(x, y);
  // Captures number inputs and results alike.
  return va == vb && x.dtype == y.dtype && columns(x.sizes) == columns(y.sizes);
}

bool same_values(const Graph& a, const Graph& b, const std::vector<int>& va,
                 const std::vector<int>& vb) {
  return std::equal(va.begin(), va.end(), vb.begin(), vb.end(),
                    [&](int x, int y) { return same_value(a, b, x, y); });
}

bool same_node(const Graph& a, const Graph& b, const Node& x, const Node& y) {
  if (!same_values(a, b, graph::reads(x), graph::reads(y)) ||
      !same_values(a, b, x.outputs, y.outputs))
    return false;
  if (graph::is_draw(x) && graph::is_draw(y))
    return x.call()->op == y.call()->op && x.call()->attrs == y.call()->attrs;
  return x.fused() != nullptr && y.fused() != nullptr && x.fused()->is_same_but_rows(*y.fused());
}

// Whether everything that is no leaf of the function has the leading sizes of input 0, lies without
// gaps, and is computed by fused kernels, which take the number of rows when they run, or drawn.
bool rows_may_be_free(const Graph& graph) {
  if (graph.inputs.empty()) return false;
  const Dims& model = graph.value(graph.inputs[0]).sizes;
  if (model.rank() < 2) return false;
  const auto follows = [&](int v) {
    const Value& value = graph.value(v);
    return graph::same_leading(value.sizes, model) &&
           detail::strides_are_contiguous(value.sizes, value.strides);
  };
  if (!std::all_of(graph.inputs.begin(), graph.inputs.end(), follows)) return false;
  for (const Node& node : graph.nodes) {
    if (node.call() != nullptr && !graph::is_draw(node)) return false;
    if (!std::all_of(node.outputs.begin(), node.outputs.end(), follows)) return false;
    if (node.fused() != nullptr && !node.fused()->takes_any_rows(graph, model)) return false;
  }
  return true;
}

// Whether two graphs of one function, captured with different leading sizes, are the same but for
// those sizes. Rows of `a` may be free.
bool same_but_rows(const Graph& a, const Graph& b) {
  return rows_may_be_free(b) && same_values(a, b, a.inputs, b.inputs) &&
         same_values(a, b, a.outputs, b.outputs) &&
         std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(),
                    [&](const Node& x, const Node& y) { return same_node(a, b, x, y); });
}

struct SplitGraph {
  graph::Graph forward;     // results: its own, then what is saved
  graph::Graph backward;    // inputs: the gradient of the result, `inputs`, what is saved
  std::vector<int> inputs;  // those of the call that the backward pass reads, by index
};

// A graph with its backward pass as two, of which the second runs later. The gradient of the one
// result is the graph's last input.
SplitGraph split(const Graph& graph, size_t forward_results) {
  std::vector<bool> is_made(graph.values.size(), false);  // by the forward pass
  std::vector<bool> is_read(graph.values.size(), false);  // by the backward pass
  SplitGraph result;
  result.forward.values = graph.values;
  result.backward.values = graph.values;
  result.forward.device = graph.device;
  result.forward.capabilities = graph.capabilities;
  result.backward.device = graph.device;
  result.backward.capabilities = graph.capabilities;
  result.forward.draws = graph.draws;
  result.forward.casts = graph.casts;
  result.backward.casts = graph.casts;
  for (const Node& node : graph.nodes) {
    (node.is_backward ? result.backward : result.forward).nodes.push_back(node);
    if (node.is_backward)
      for (const int v : graph::reads(node)) is_read[static_cast<size_t>(v)] = true;
    if (!node.is_backward)
      for (const int v : node.outputs) is_made[static_cast<size_t>(v)] = true;
  }
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const int v = graph.outputs[i];
    (i < forward_results ? result.forward : result.backward).outputs.push_back(v);
    if (i >= forward_results) is_read[static_cast<size_t>(v)] = true;
  }
  const int seed = graph.inputs.back();
  result.forward.inputs.assign(graph.inputs.begin(), graph.inputs.end() - 1);
  result.backward.inputs = {seed};
  for (size_t i = 0; i + 1 < graph.inputs.size(); ++i) {
    if (!is_read[static_cast<size_t>(graph.inputs[i])]) continue;
    result.inputs.push_back(static_cast<int>(i));
    result.backward.inputs.push_back(graph.inputs[i]);
  }
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (!is_made[v] || !is_read[v]) continue;
    result.forward.outputs.push_back(static_cast<int>(v));
    result.backward.inputs.push_back(static_cast<int>(v));
    result.backward.values[v].kind = graph::ValueKind::input;
  }
  return result;
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
    more.push_back(same < i ? more[same] : empty(sizes, in[i].dtype(), in[i].device()));
  }
  return more;
}

// Whether the function gives this plan for these inputs, which have other rows.
bool gives_plan(const Capture& capture, std::span<const Tensor> in, const graph::Graph& planned,
                const passes::PipelineOptions& options) {
  graph::Graph other = capture(in).graph;
  passes::run_pipeline(other, options);
  return same_but_rows(planned, other);
}

// Whether it may give the same plan for all numbers of rows.
bool rows_are_free(const Capture& capture, std::span<const Tensor> in, const graph::Graph& planned,
                   const passes::PipelineOptions& options) {
  if (!rows_may_be_free(planned)) return false;
  try {
    return gives_plan(capture, with_more_rows(in), planned, options);
  } catch (const std::exception&) {
    return false;  // the function wants this number of rows
  }
}

// With `int8_weights` among them.
Quantisation bits_of(const CompileOptions& o) {
  Quantisation bits = o.bits;
  if (o.int8_weights && bits.weights == WeightBits::same) bits.weights = WeightBits::int8;
  return bits;
}

// The options that decide what candidates are.
std::string choice_text(const CompileOptions& o) {
  const Quantisation bits = bits_of(o);
  std::string text;
  if (bits.weights == WeightBits::int8)
    text = bits.activations == ActivationBits::int8 ? "; w8a8" : "; int8";
  if (bits.weights == WeightBits::int4)
    text = (bits.activations == ActivationBits::int8 ? "; w4a8 " : "; int4 ") +
           std::to_string(bits.group) + (bits.zero_points ? " zeros" : "");
  if (o.collapse_linears) text += "; collapsed";
  for (const std::string& pass : o.skip) text += "; no " + pass;
  return text + "; " + std::to_string(static_cast<int>(o.saved)) +
         std::to_string(static_cast<int>(o.packed));
}

// Numbers of rows that an entry remembers; others are looked at anew in each call.
constexpr size_t kMostRowsKnown = 1 << 16;

// Threads that share an entry write its time of use no more often: some 10 us, a small part of what
// it takes to make the next plan.
constexpr int64_t kUseTicks = 20'000;

size_t hash_of(const Dims& sizes) {
  size_t hash = 0;
  for (const int64_t size : sizes) hash = hash * 1'000'003 + static_cast<size_t>(size);
  return hash;
}

// The captured call; what the modules that ran hold goes to `watched`.
Captured capture_watched(const Capture& capture, std::span<const Tensor> in,
                         WatchedState& watched) {
  struct Restore {
    WatchedState* before = std::exchange(thread_state().watched, nullptr);
    ~Restore() { thread_state().watched = before; }
  };
  const Restore restore;
  thread_state().watched = &watched;
  return capture(in);
}

}  // namespace

Entry::Entry(const Capture& capture, std::span<const Tensor> in, const CompileOptions& options,
             bool keeps_gradients)
    : capture_(capture),
      options_(options),
      keeps_gradients_(keeps_gradients),
      captured_(capture_watched(capture, in, watched_)) {
  graph::verify(captured());
  note_guards(in);
  if (has_backward()) graph::mark_backward(captured_.graph, captured_.forward_results);
  candidate_ = choose(in);
  Built built = build(candidate_, in);
  built.plan->tune(candidate_.tuning);
  passes_ = std::move(built.passes);
  plan_ = std::move(built.plan);
  backward_plan_ = std::move(built.backward_plan);
  backward_inputs_ = std::move(built.backward_inputs);
  if (plan_->has_free_rows()) remember_fit(in[0].sizes(), true);
  mark_used();
}

Entry::Built Entry::build(const Candidate& candidate, std::span<const Tensor> in) const {
  Built built;
  graph::Graph graph = captured();
  const passes::PipelineOptions options = pipeline_options(options_, candidate);
  built.passes = passes::run_pipeline(graph, options);
  if (captured_.runs_backward_later) {
    SplitGraph parts = split(graph, captured_.forward_results);
    built.plan = std::make_unique<Plan>(std::move(parts.forward), Plan::Options{});
    built.backward_plan = std::make_shared<Plan>(std::move(parts.backward), Plan::Options{});
    built.backward_inputs = std::move(parts.inputs);
    return built;
  }
  // Gradients are those of the weights as they are.
  const bool inference = !has_backward();
  const bool free_rows = inference && options_.dynamic_rows && !may_measure() &&
                         rows_are_free(capture_, in, graph, options);
  built.plan = std::make_unique<Plan>(
      std::move(graph),
      Plan::Options{.free_rows = free_rows,
                    .kernels = {.bits = inference ? bits_of(options_) : Quantisation{}},
                    .handed_out = handed_out()});
  return built;
}

// What is drawn at random would be drawn again; a backward pass that runs later is not there yet.
bool Entry::may_measure() const {
  return options_.tune == Tune::measure && options_.choice.empty() &&
         captured().capabilities.ends_with_call && !captured_.runs_backward_later &&
         std::ranges::none_of(captured().nodes, graph::is_draw);
}

Candidate Entry::choose(std::span<const Tensor> in) {
  const bool trains = has_backward();
  if (!options_.choice.empty()) return candidate_of(options_.choice, trains);
  if (!may_measure()) return candidates(trains).front();
  const std::string key = choice_key(graph::to_text(captured()) + choice_text(options_));
  const std::vector<Candidate> all = candidates(trains);
  std::optional<Choice> known = find_choice(key);
  const auto has_name = [&](const Candidate& c) { return known && c.name == known->name; };
  if (std::ranges::none_of(all, has_name)) {
    known = measure(in);
    keep_choice(key, *known);
  }
  measured_ = *known;
  return candidate_of(known->name, trains);
}

Choice Entry::measure(std::span<const Tensor> in) const {
  std::vector<Built> built;
  std::vector<Contender> contenders;
  std::set<std::string> seen;
  for (const Candidate& c : candidates(has_backward())) {
    // What differs by its tuning alone shares the first one's plan, and its packed weights.
    const bool is_tuning = !(c.tuning == KernelTuning{});
    if (!is_tuning) built.push_back(build(c, in));
    Plan& plan = is_tuning ? *built.front().plan : *built.back().plan;
    if (!plan.tune(c.tuning) && is_tuning) continue;
    const std::string text = graph::to_text(plan.graph());
    const bool widens = c.tuning.widens && text.find("bf16") != std::string::npos;
    const std::string how = text + plan.describe_kernels() + (widens ? "wide" : "") +
                            (c.tuning.prefetches ? "" : "without prefetch");
    if (!seen.insert(how).second) {
      if (!is_tuning) built.pop_back();
      continue;
    }
    contenders.push_back({c.name, &plan, c.tuning});
  }
  std::vector<Tensor> out(results());
  // A step changes its weights: packing them is part of it.
  const auto before_call = [this] {
    if (has_backward())
      for (const Leaf& leaf : leaves())
        if (leaf.input < 0) leaf.parameter.increment_version();
  };
  return fastest(contenders, in, out, before_call);
}

void Entry::note_guards(std::span<const Tensor> in) {
  if (const AutocastState* const autocast = thread_state().autocast) autocast_ = autocast->regions;
  for (size_t i = 0; i < in.size(); ++i)
    inputs_.push_back({in[i].dtype(), in[i].device(), in[i].sizes(), in[i].strides(),
                       first_same(in, i), in[i].requires_grad()});
  for (const graph::Value& value : captured().values)
    if (value.kind == graph::ValueKind::parameter)
      parameters_.push_back({KnownWeight(value.tensor), value.tensor.requires_grad()});
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

bool Entry::remember_fit(const Dims& sizes, bool fits) const {
  if (fits_known_.fetch_add(1, std::memory_order_relaxed) < kMostRowsKnown)
    fits_[hash_of(sizes) % kFitLists].push({sizes, fits});
  return fits;
}

// A function may ask for its input's sizes and do something else: one capture cannot show that.
bool Entry::fits_rows(std::span<const Tensor> in) const {
  const Dims& sizes = in[0].sizes();
  const Fit* const known =
      fits_[hash_of(sizes) % kFitLists].find([&](const Fit& fit) { return fit.sizes == sizes; });
  if (known != nullptr) return known->fits;
  return remember_fit(
      sizes, gives_plan(capture_, in, plan_->graph(), pipeline_options(options_, candidate_)));
}

void Entry::mark_used() const {
  const int64_t now = ticks();
  if (now - last_used() > kUseTicks) last_used_.store(now, std::memory_order_relaxed);
}

bool Entry::accepts(std::span<const Tensor> in) const {
  const ThreadState& thread = thread_state();
  if (in.size() != inputs_.size() || (thread.autocast != nullptr) != autocast_.has_value() ||
      (autocast_ && !(thread.autocast->regions == *autocast_)) ||
      captured_.grad_mode.value_or(thread.grad_enabled) != thread.grad_enabled)
    return false;
  for (size_t i = 0; i < in.size(); ++i)
    if (!accepts_input(in, i)) return false;
  return std::all_of(
             parameters_.begin(), parameters_.end(),
             [&](const ParameterGuard& p) {
               return !p.weight.is_moved() &&
                      (!options_.collapse_linears || !p.weight.is_written()) &&
                      (!guards_gradients() || p.weight.tensor.requires_grad() == p.requires_grad);
             }) &&
         watched_.is_unchanged() && (!plan_->has_free_rows() || fits_rows(in));
}

int64_t Entry::kernels() const {
  return plan_->kernels() + (backward_plan_ != nullptr ? backward_plan_->kernels() : 0);
}

int64_t Entry::intermediate_bytes() const {
  return plan_->held_bytes() + (backward_plan_ != nullptr ? backward_plan_->held_bytes() : 0);
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
