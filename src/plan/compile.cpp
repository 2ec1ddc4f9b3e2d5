// SPDX-License-Identifier: Apache-2.0
// Compiled: which plan runs, and whether autograd gets a node of it.
#include "epilogue/compile.h"

#include "core/observer.h"
#include "epilogue/autograd.h"
#include "plan/explain.h"
#include "plan/gradient_capture.h"
#include "plan/plan_cache.h"
#include "plan/run_recorded.h"

namespace epilogue {

class Compiled::Impl {
 public:
  Impl(Function function, CompileOptions options)
      : function_(std::move(function)), cache_(std::move(options)) {}

  // The results' number is the plan's.
  plan::Entry& entry_for(std::span<const Tensor> in) {
    return cache_.find_or_make(in, [&] {
      const auto capture = [this](std::span<const Tensor> inputs) {
        if (grad_enabled()) return plan::capture_function(function_, inputs);
        return plan::Captured{.graph = graph::capture(function_, inputs), .grad_mode = false};
      };
      return std::make_unique<plan::Entry>(capture, in, cache_.options());
    });
  }

  void run(plan::Entry& entry, std::span<const Tensor> in, std::span<Tensor> out) {
    cache_.count_call();
    if (entry.backward_plan() != nullptr) {
      out[0] = plan::run_recorded(entry, in);
    } else {
      entry.plan().run(in, out);
    }
  }

  std::vector<Tensor> run(std::span<const Tensor> in) {
    // Part of another function that is being captured: that one's graph takes the ops.
    if (thread_state().capture != nullptr) return function_(in);
    plan::Entry& entry = entry_for(in);
    std::vector<Tensor> out(entry.results());
    run(entry, in, out);
    return out;
  }

  Tensor run_one(const Tensor& in) {
    if (thread_state().capture != nullptr) return function_({&in, 1}).at(0);
    plan::Entry& entry = entry_for({&in, 1});
    if (entry.results() != 1)
      throw Error("[compile] expected a function with 1 result(s), got " +
                  std::to_string(entry.results()));
    Tensor out;
    run(entry, {&in, 1}, {&out, 1});
    return out;
  }

  plan::PlanCache& cache() { return cache_; }
  const plan::Entry* last() const { return cache_.last(); }

 private:
  Function function_;
  plan::PlanCache cache_;
};

Compiled::Compiled(Function function, CompileOptions options)
    : impl_(std::make_shared<Impl>(std::move(function), std::move(options))) {}

std::vector<Tensor> Compiled::operator()(std::span<const Tensor> inputs) {
  return impl_->run(inputs);
}
Tensor Compiled::operator()(const Tensor& input) { return impl_->run_one(input); }
void Compiled::prepare(std::span<const Tensor> inputs) { impl_->entry_for(inputs); }
CompileStats Compiled::stats() const { return impl_->cache().stats(); }
void Compiled::reset() { impl_->cache().clear(); }

std::string Compiled::explain() const {
  return impl_->last() != nullptr ? plan::explain(*impl_->last()) : "";
}
std::vector<FusionNote> Compiled::notes() const {
  return impl_->last() != nullptr ? plan::notes(*impl_->last()) : std::vector<FusionNote>();
}
std::string Compiled::dump(CompiledDump what) const {
  return impl_->last() != nullptr ? plan::dump(*impl_->last(), what) : "";
}

std::vector<std::pair<std::string, std::string>> Compiled::dump_passes() const {
  std::vector<std::pair<std::string, std::string>> texts;
  if (impl_->last() == nullptr) return texts;
  graph::Graph graph = impl_->last()->captured();
  passes::PipelineOptions options = plan::pipeline_options(impl_->cache().options());
  options.keep_texts = true;
  for (const passes::PassRecord& pass : passes::run_pipeline(graph, options).passes)
    texts.emplace_back(pass.name, pass.skipped ? "skipped\n" : pass.text);
  return texts;
}

std::vector<std::string> compile_pass_names() {
  std::vector<std::string> names;
  names.reserve(passes::pipeline().size());
  for (const passes::Pass& pass : passes::pipeline()) names.emplace_back(pass.name);
  return names;
}

}  // namespace epilogue
