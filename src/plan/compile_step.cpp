// SPDX-License-Identifier: Apache-2.0
// CompiledStep: a plan that gives the loss and all gradients, and what becomes of these.
#include "epilogue/compile_step.h"

#include "autograd/node.h"
#include "core/observer.h"
#include "epilogue/autograd.h"
#include "plan/explain.h"
#include "plan/gradient_capture.h"
#include "plan/plan_cache.h"
#include "plan/step_memory.h"

namespace epilogue {

class CompiledStep::Impl {
 public:
  Impl(Loss loss, CompileOptions options) : loss_(std::move(loss)), cache_(std::move(options)) {
    if (cache_.options().collapse_linears)
      throw Error("[compile_step] expected collapse_linears off: training changes the weights");
  }

  plan::Entry& entry_for(std::span<const Tensor> in) {
    if (thread_state().capture != nullptr)
      throw Error(
          "[compile_step] expected a call of its own, got one inside a function that is "
          "being compiled");
    return cache_.find_or_make(in, [&] {
      const auto capture = [this](std::span<const Tensor> inputs) {
        return plan::capture_step(loss_, inputs);
      };
      return std::make_unique<plan::Entry>(capture, in, cache_.options());
    });
  }

  Tensor run(std::span<const Tensor> in, const Receiver& receiver) {
    cache_.count_call();
    plan::Entry& entry = entry_for(in);
    const NoGrad no_grad;
    std::vector<Tensor> results(1 + entry.leaves().size());
    entry.plan().run(in, results);
    std::vector<Tensor> leaves;
    for (const plan::Leaf& leaf : entry.leaves()) leaves.push_back(leaf.of(in));
    if (receiver) {
      receiver(leaves, std::span<const Tensor>(results).subspan(1));
    } else {
      for (size_t i = 0; i < leaves.size(); ++i)
        accumulate_gradient(leaves[i], std::move(results[i + 1]));
    }
    return std::move(results[0]);
  }

  plan::PlanCache& cache() { return cache_; }
  const plan::Entry* last() const { return cache_.last(); }

 private:
  Loss loss_;
  plan::PlanCache cache_;
};

CompiledStep::CompiledStep(Loss loss, CompileOptions options)
    : impl_(std::make_shared<Impl>(std::move(loss), std::move(options))) {}

Tensor CompiledStep::operator()(std::span<const Tensor> inputs) { return impl_->run(inputs, {}); }
Tensor CompiledStep::operator()(const Tensor& x, const Tensor& target) {
  const Tensor inputs[] = {x, target};
  return impl_->run(inputs, {});
}
Tensor CompiledStep::run(std::span<const Tensor> inputs, const Receiver& receiver) {
  return impl_->run(inputs, receiver);
}
void CompiledStep::prepare(std::span<const Tensor> inputs) { impl_->entry_for(inputs); }
CompileStats CompiledStep::stats() const { return impl_->cache().stats(); }
void CompiledStep::reset() { impl_->cache().clear(); }

std::string CompiledStep::explain() const {
  return impl_->last() != nullptr ? plan::explain(*impl_->last()) : "";
}
std::vector<FusionNote> CompiledStep::notes() const {
  return impl_->last() != nullptr ? plan::notes(*impl_->last()) : std::vector<FusionNote>();
}
std::string CompiledStep::dump(CompiledDump what) const {
  return impl_->last() != nullptr ? plan::dump(*impl_->last(), what) : "";
}
StepMemory CompiledStep::memory() const {
  return impl_->last() != nullptr ? plan::step_memory(*impl_->last(), impl_->cache().options())
                                  : StepMemory();
}

}  // namespace epilogue
