// SPDX-License-Identifier: Apache-2.0
// Compiled: which plan runs, and whether autograd gets a node of it.
#include "epilogue/compile.h"

#include "autograd/node.h"
#include "core/observer.h"
#include "core/watched_state.h"
#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "ops/overlap.h"
#include "plan/compiled_base.h"
#include "plan/compiled_entry.h"
#include "plan/gradient_capture.h"

namespace epilogue {
namespace plan {
namespace {

// Lends the node its name. `saves` anything: a graph is walked once.
constinit const OpDef kCompiledOp{.name = "epilogue::compiled",
                                  .schema = "(Tensor[] inputs)",
                                  .doc = "a compiled function",
                                  .saves = save_input(0)};

// The backward plan as a rule: of the saved tensors the first `count` are its inputs; the others
// are parameters, which it reads itself.
GradientRule rule_of(const std::shared_ptr<Plan>& plan, size_t count, size_t leaves) {
  return [plan, count, leaves](const GradCall& call) {
    if (grad_enabled())
      throw Error(
          "[compile] expected no create_graph: compiled functions have no second derivative");
    std::vector<Tensor> in = {call.dout.is_contiguous() ? call.dout : contiguous(call.dout)};
    in.insert(in.end(), call.in.begin(), call.in.begin() + static_cast<std::ptrdiff_t>(count));
    Gradients gradients(leaves);
    plan->run(in, gradients);
    return gradients;
  };
}

// Runs the forward pass of an entry whose backward pass runs later, and makes the result one node
// of the autograd graph ("CompiledBackward0").
Tensor run_recorded(const Entry& entry, std::span<const Tensor> in) {
  const NoGrad no_grad;
  std::vector<Tensor> results(entry.plan().graph().outputs.size());
  entry.plan().run(in, results);
  std::vector<Tensor> saved;
  for (const int i : entry.backward_inputs()) saved.push_back(in[static_cast<size_t>(i)]);
  saved.insert(saved.end(), results.begin() + 1, results.end());
  const size_t count = saved.size();
  const graph::Graph& backward = entry.backward_plan()->graph();
  for (const graph::Node& node : backward.nodes)
    for (const int v : graph::reads(node))
      if (backward.value(v).kind == graph::ValueKind::parameter)
        saved.push_back(backward.value(v).tensor);
  for (const std::shared_ptr<graph::Cast>& cast : backward.casts) saved.push_back(cast->from);
  std::vector<Tensor> leaves;
  for (const Leaf& leaf : entry.leaves()) leaves.push_back(leaf.of(in));
  // The result may be an input, a parameter or saved: it gets a place in the graph of its own.
  const Tensor result = results[0].detach();
  record_function(kCompiledOp, leaves, saved, result,
                  rule_of(entry.backward_plan(), count, leaves.size()));
  return result;
}

}  // namespace
}  // namespace plan

class Compiled::Impl final : public Plans {
 public:
  Impl(Function function, CompileOptions options, WatchedObject watched)
      : Plans(std::move(options)), function_(std::move(function)), watched_(watched) {
    if (!function_) throw Error("[compile] expected a function, got an empty one");
  }

  std::vector<Tensor> run(std::span<const Tensor> in) {
    if (is_captured()) return function_(in);
    std::vector<Tensor> out;
    with_entry(in, [&](const plan::Entry& entry) {
      out.resize(entry.results());
      run(entry, in, out);
    });
    return out;
  }

  Tensor run_one(std::span<const Tensor> in) {
    if (is_captured()) {
      std::vector<Tensor> out = function_(in);
      require_results(out.size(), 1);
      return std::move(out[0]);
    }
    Tensor out;
    with_entry(in, [&](const plan::Entry& entry) {
      require_results(entry.results(), 1);
      run(entry, in, {&out, 1});
    });
    return out;
  }

  void run_into(std::span<const Tensor> in, std::span<const Tensor> out) {
    if (thread_state().capture != nullptr)
      throw Error(
          "[compile] expected a call of its own with `out`, got one inside a function that "
          "is being compiled");
    with_entry(in, [&](const plan::Entry& entry) {
      require_results(entry.results(), out.size());
      if (entry.backward_plan() != nullptr)
        throw Error("[compile] expected no_grad with `out`: the result would be part of a graph");
      for (size_t i = 0; i < out.size(); ++i) {
        require_target(entry, in, i, out[i]);
        for (size_t j = 0; j < i; ++j) require_apart(out[i], "the other results", out[j]);
      }
      cache().count_call();
      entry.plan().run_into(in, out);
    });
  }

  void prepare(std::span<const Tensor> in) {
    with_entry(in, [](const plan::Entry&) {});
  }

 private:
  // Part of another function that is being captured: that one's graph takes the ops.
  bool is_captured() const {
    if (thread_state().capture == nullptr) return false;
    watch(thread_state().watched);
    return true;
  }

  void watch(WatchedState* state) const {
    if (state != nullptr && watched_.bytes > 0) state->watch(watched_.object, watched_.bytes);
  }

  template <class Use>
  void with_entry(std::span<const Tensor> in, Use&& use) {
    const auto capture = [this](std::span<const Tensor> inputs) {
      watch(thread_state().watched);
      if (grad_enabled()) return plan::capture_function(function_, inputs);
      return plan::Captured{.graph = graph::capture(function_, inputs), .grad_mode = false};
    };
    const auto make = [&] {
      return std::make_shared<const plan::Entry>(capture, in, cache().options());
    };
    cache().with_entry(in, make, std::forward<Use>(use));
  }

  void run(const plan::Entry& entry, std::span<const Tensor> in, std::span<Tensor> out) {
    cache().count_call();
    if (entry.backward_plan() != nullptr) {
      out[0] = plan::run_recorded(entry, in);
    } else {
      entry.plan().run(in, out);
    }
  }

  static void require_results(size_t has, size_t wanted) {
    if (has != wanted)
      throw Error("[compile] expected a function with " + std::to_string(wanted) +
                  " result(s), got " + std::to_string(has));
  }

  static void require_target(const plan::Entry& entry, std::span<const Tensor> in, size_t i,
                             const Tensor& out) {
    const graph::Graph& graph = entry.plan().graph();
    const graph::Value& result = graph.value(graph.outputs[i]);
    Dims sizes = result.sizes;
    if (entry.plan().has_free_rows()) {
      sizes = in[0].sizes();
      sizes[sizes.rank() - 1] = result.sizes[result.sizes.rank() - 1];
    }
    if (!out.defined() || out.dtype() != result.dtype || !(out.sizes() == sizes) ||
        !(out.device() == graph.device) || !out.is_contiguous())
      throw Error("[compile] expected a contiguous out of " +
                  std::string(dtype_name(result.dtype)) + to_string(sizes) + " on " +
                  to_string(graph.device) + ", got " + to_string(out));
    for (const Tensor& t : in) require_apart(out, "the inputs", t);
  }

  static void require_apart(const Tensor& out, const char* others, const Tensor& other) {
    if (extents_meet(out, other))
      throw Error(std::string("[compile] expected an out apart from ") + others + ", got " +
                  to_string(out) + " that overlaps " + to_string(other));
  }

  Function function_;
  WatchedObject watched_;
};

Compiled::Compiled(Function function, CompileOptions options, WatchedObject watched)
    : CompiledBase(std::make_shared<Impl>(std::move(function), std::move(options), watched),
                   "compile", "compiled function") {}

Compiled::Impl& Compiled::impl() const { return static_cast<Impl&>(plans()); }

std::vector<Tensor> Compiled::operator()(std::span<const Tensor> inputs) const {
  return impl().run(inputs);
}
Tensor Compiled::run_one(std::span<const Tensor> inputs) const { return impl().run_one(inputs); }
void Compiled::run_into(std::span<const Tensor> inputs, std::span<const Tensor> out) const {
  impl().run_into(inputs, out);
}
void Compiled::prepare(std::span<const Tensor> inputs) const { impl().prepare(inputs); }

std::vector<std::string> compile_pass_names() {
  std::vector<std::string> names;
  names.reserve(passes::pipeline().size());
  for (const passes::Pass& pass : passes::pipeline()) names.emplace_back(pass.name);
  return names;
}

}  // namespace epilogue
