// SPDX-License-Identifier: Apache-2.0
// CompiledStep: a plan that gives the loss and all gradients, and what becomes of these.
#include "epilogue/compile_step.h"

#include <atomic>
#include <cmath>
#include <iterator>
#include <set>

#include "autograd/node.h"
#include "core/observer.h"
#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "plan/compiled_base.h"
#include "plan/compiled_entry.h"
#include "plan/gradient_capture.h"

namespace epilogue {
namespace plan {
namespace {

int64_t arena_bytes(const Entry& entry, CompileOptions options, Saved saved) {
  options.saved = saved;
  graph::Graph graph = entry.captured();
  passes::run_pipeline(graph, pipeline_options(options, entry.candidate()));
  std::vector<int64_t> bytes;
  bytes.reserve(graph.values.size());
  for (const graph::Value& value : graph.values)
    bytes.push_back(element_count(value.sizes) * static_cast<int64_t>(dtype_bytes(value.dtype)));
  return plan_memory(graph, bytes, entry.handed_out()).arena_bytes;
}

// Plans the step's memory anew for everything that it could save.
StepMemory step_memory(const Entry& entry, const CompileOptions& options) {
  return {entry.intermediate_bytes(), arena_bytes(entry, options, Saved::automatic),
          arena_bytes(entry, options, Saved::save), arena_bytes(entry, options, Saved::recompute)};
}

}  // namespace
}  // namespace plan

namespace {

// A call's inputs. A weight other than 1 stands behind them, so that one plan serves all weights;
// it stands there twice, as one tensor: no other call has such inputs.
class WeightedInputs {
 public:
  WeightedInputs(std::span<const Tensor> inputs, double loss_weight) : given_(inputs) {
    if (loss_weight == 1) return;
    if (!std::isfinite(loss_weight))
      throw Error("[compile_step] expected a finite loss weight, got " +
                  std::to_string(loss_weight));
    with_weight_.assign(inputs.begin(), inputs.end());
    const bool is_placed = !inputs.empty() && inputs[0].defined();
    const Tensor weight =
        full({}, loss_weight, DType::f32, is_placed ? inputs[0].device() : Device());
    with_weight_.insert(with_weight_.end(), 2, weight);
  }
  bool is_weighted() const { return !with_weight_.empty(); }
  std::span<const Tensor> all() const {
    return is_weighted() ? std::span<const Tensor>(with_weight_) : given_;
  }

 private:
  std::span<const Tensor> given_;
  std::vector<Tensor> with_weight_;
};

// The results of inputs that a weight follows; the loss, which is the first, times that weight.
plan::StepFunction weighted(const CompiledStep::Function& function) {
  return [&function](std::span<const Tensor> in) {
    std::vector<Tensor> results = function(in.first(in.size() - 2));
    if (!results.empty() && results[0].defined())
      results[0] = mul(results[0], to(in.back(), results[0].dtype()));
    return results;
  };
}

CompiledStep::Function function_of(CompiledStep::Loss loss) {
  if (!loss) return {};
  return [loss = std::move(loss)](std::span<const Tensor> in) {
    return std::vector<Tensor>{loss(in)};
  };
}

// The one call that may use a step's plans: gradients lie in their memory.
class OneCall {
 public:
  explicit OneCall(std::atomic<bool>& busy) : busy_(busy) {
    if (busy_.exchange(true, std::memory_order_acquire))
      throw Error(
          "[compile_step] expected one call at a time of a compiled step and its copies, got one "
          "during another: give each thread its own compile_step()");
  }
  ~OneCall() { busy_.store(false, std::memory_order_release); }
  OneCall(const OneCall&) = delete;
  OneCall& operator=(const OneCall&) = delete;

 private:
  std::atomic<bool>& busy_;
};

}  // namespace

class CompiledStep::Impl final : public Plans {
 public:
  Impl(Function function, CompileOptions options)
      : Plans(std::move(options)), function_(std::move(function)) {
    if (!function_) throw Error("[compile_step] expected a loss, got an empty function");
    if (cache().options().collapse_linears)
      throw Error("[compile_step] expected collapse_linears off: training changes the weights");
  }

  // Without a receiver gradients are added to .grad. Gives the results of the forward pass.
  std::vector<Tensor> run(std::span<const Tensor> inputs, const Receiver& receiver,
                          double loss_weight) {
    const WeightedInputs in(inputs, loss_weight);
    Results results;
    with_entry(in, false, [&](const plan::Entry& entry) {
      results = run_plan(entry, in.all());
      const std::vector<Tensor> leaves = leaves_of(entry, in.all());
      if (receiver) {
        const NoGrad no_grad;
        if (entry.keeps_gradients())
          for (Tensor& gradient : results.gradients) gradient = clone(gradient);
        receiver(leaves, results.gradients);
      } else {
        accumulate(leaves, results.gradients);
      }
    });
    return std::move(results.forward);
  }

  std::vector<Tensor> train(std::span<const Tensor> inputs, const Update& update,
                            double loss_weight) {
    const WeightedInputs in(inputs, loss_weight);
    Results results;
    with_entry(in, true, [&](const plan::Entry& entry) {
      results = run_plan(entry, in.all());
      const GradientsOf leaves{leaves_of(entry, in.all())};
      lend(entry.plan(), leaves.list, results.gradients);
      update(results.forward);
    });
    return std::move(results.forward);
  }

  void prepare(std::span<const Tensor> inputs, double loss_weight) {
    with_entry(WeightedInputs(inputs, loss_weight), false, [](const plan::Entry&) {});
  }

 private:
  struct Results {
    std::vector<Tensor> forward;    // the loss first
    std::vector<Tensor> gradients;  // by leaf
  };

  // Drops them, also where an update throws.
  struct GradientsOf {
    ~GradientsOf() {
      for (const Tensor& leaf : list) leaf.set_grad({});
    }
    std::vector<Tensor> list;
  };

  // Who calls first decides where a plan leaves the gradients.
  template <class Use>
  void with_entry(const WeightedInputs& in, bool keeps_gradients, Use&& use) {
    const OneCall call(busy_);
    if (thread_state().capture != nullptr)
      throw Error(
          "[compile_step] expected a call of its own, got one inside a function that is "
          "being compiled");
    const auto capture = [this, is_weighted = in.is_weighted()](std::span<const Tensor> inputs) {
      return plan::capture_step(is_weighted ? weighted(function_) : function_, inputs);
    };
    const auto make = [&] {
      return std::make_shared<const plan::Entry>(capture, in.all(), cache().options(),
                                                 keeps_gradients);
    };
    cache().with_entry(in.all(), make, std::forward<Use>(use));
  }

  Results run_plan(const plan::Entry& entry, std::span<const Tensor> in) {
    cache().count_call();
    const NoGrad no_grad;
    std::vector<Tensor> all(entry.results() + entry.leaves().size());
    entry.plan().run(in, all);
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(entry.results());
    Results results;
    results.gradients.assign(std::make_move_iterator(first), std::make_move_iterator(all.end()));
    all.erase(first, all.end());
    results.forward = std::move(all);
    return results;
  }

  static std::vector<Tensor> leaves_of(const plan::Entry& entry, std::span<const Tensor> in) {
    std::vector<Tensor> leaves;
    for (const plan::Leaf& leaf : entry.leaves()) leaves.push_back(leaf.of(in));
    return leaves;
  }

  // As accumulate(), but gradients that are the plan's and nobody else's are not copied.
  static void lend(const plan::Plan& plan, const std::vector<Tensor>& leaves,
                   const std::vector<Tensor>& gradients) {
    const NoGrad no_grad;
    std::set<const void*> lent;
    for (size_t i = 0; i < leaves.size(); ++i) {
      const Tensor& gradient = gradients[i];
      const bool is_free = !leaves[i].grad().defined() && plan.owns(gradient) &&
                           gradient.is_contiguous() && lent.insert(gradient.data()).second;
      if (is_free) {
        leaves[i].set_grad(gradient);
      } else {
        accumulate_gradient(leaves[i], gradient);
      }
    }
  }

  static void accumulate(const std::vector<Tensor>& leaves, std::vector<Tensor>& gradients) {
    const NoGrad no_grad;
    for (size_t i = 0; i < leaves.size(); ++i)
      accumulate_gradient(leaves[i], std::move(gradients[i]));
  }

  Function function_;
  std::atomic<bool> busy_{false};
};

CompiledStep::CompiledStep(Loss loss, CompileOptions options)
    : CompiledStep(function_of(std::move(loss)), std::move(options)) {}
CompiledStep::CompiledStep(Function function, CompileOptions options)
    : CompiledBase(std::make_shared<Impl>(std::move(function), std::move(options)), "compile_step",
                   "compiled step") {}

CompiledStep::Impl& CompiledStep::impl() const { return static_cast<Impl&>(plans()); }

Tensor CompiledStep::operator()(std::span<const Tensor> inputs, double loss_weight) {
  return impl().run(inputs, {}, loss_weight)[0];
}
Tensor CompiledStep::operator()(const Tensor& x, const Tensor& target, double loss_weight) {
  const Tensor inputs[] = {x, target};
  return impl().run(inputs, {}, loss_weight)[0];
}
Tensor CompiledStep::run(std::span<const Tensor> inputs, const Receiver& receiver,
                         double loss_weight) {
  if (!receiver) throw Error("[compile_step] expected a receiver, got an empty function");
  return impl().run(inputs, receiver, loss_weight)[0];
}
Tensor CompiledStep::train(std::span<const Tensor> inputs, const std::function<void()>& update,
                           double loss_weight) {
  if (!update) throw Error("[compile_step] expected an update, got an empty function");
  return impl().train(
      inputs, [&](std::span<const Tensor>) { update(); }, loss_weight)[0];
}
Tensor CompiledStep::train(const Tensor& x, const Tensor& target,
                           const std::function<void()>& update, double loss_weight) {
  const Tensor inputs[] = {x, target};
  return train(inputs, update, loss_weight);
}
std::vector<Tensor> CompiledStep::results(std::span<const Tensor> inputs, const Update& update,
                                          double loss_weight) {
  return update ? impl().train(inputs, update, loss_weight) : impl().run(inputs, {}, loss_weight);
}
void CompiledStep::prepare(std::span<const Tensor> inputs, double loss_weight) {
  impl().prepare(inputs, loss_weight);
}
std::vector<std::string> compiled_step_plan_names() {
  std::vector<std::string> names;
  for (const plan::Candidate& c : plan::candidates(true)) names.push_back(c.name);
  return names;
}

StepMemory CompiledStep::memory() const {
  const std::shared_ptr<const plan::Entry> last = impl().last();
  return last != nullptr ? plan::step_memory(*last, impl().cache().options()) : StepMemory();
}

}  // namespace epilogue
