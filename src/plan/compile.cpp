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
      : function_(std::move(function)), cache_(std::move(options)) {
    if (!function_) throw Error("[compile] expected a function, got an empty one");
  }

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
    const plan::OneCall call = cache_.one_call();
    plan::Entry& entry = entry_for(in);
    std::vector<Tensor> out(entry.results());
    run(entry, in, out);
    return out;
  }

  Tensor run_one(const Tensor& in) {
    if (thread_state().capture != nullptr) return function_({&in, 1}).at(0);
    const plan::OneCall call = cache_.one_call();
    plan::Entry& entry = entry_for({&in, 1});
    if (entry.results() != 1)
      throw Error("[compile] expected a function with 1 result(s), got " +
                  std::to_string(entry.results()));
    Tensor out;
    run(entry, {&in, 1}, {&out, 1});
    return out;
  }

  void prepare(std::span<const Tensor> in) {
    const plan::OneCall call = cache_.one_call();
    entry_for(in);
  }

  plan::PlanCache& cache() { return cache_; }
  const plan::Entry* last() const { return cache_.last(); }

 private:
  Function function_;
  plan::PlanCache cache_;
};

Compiled::Compiled(Function function, CompileOptions options)
    : impl_(std::make_shared<Impl>(std::move(function), std::move(options))) {}

Compiled::Impl& Compiled::impl() const {
  if (impl_ == nullptr)
    throw Error("[compile] expected a compiled function, got one that was moved from");
  return *impl_;
}

std::vector<Tensor> Compiled::operator()(std::span<const Tensor> inputs) {
  return impl().run(inputs);
}
Tensor Compiled::operator()(const Tensor& input) { return impl().run_one(input); }
void Compiled::prepare(std::span<const Tensor> inputs) { impl().prepare(inputs); }
CompileStats Compiled::stats() const { return impl().cache().stats(); }
void Compiled::reset() { impl().cache().clear(); }

std::string Compiled::explain() const {
  return impl().last() != nullptr ? plan::explain(*impl().last()) : "";
}
std::vector<FusionNote> Compiled::notes() const {
  return impl().last() != nullptr ? plan::notes(*impl().last()) : std::vector<FusionNote>();
}
std::string Compiled::dump(CompiledDump what) const {
  return impl().last() != nullptr ? plan::dump(*impl().last(), what) : "";
}

std::string Compiled::choice() const {
  return impl().last() != nullptr ? impl().last()->candidate().name : "";
}

std::vector<PlanCandidate> Compiled::candidates() const {
  return impl().last() != nullptr ? plan::candidates_of(*impl().last())
                                  : std::vector<PlanCandidate>();
}

std::vector<std::pair<std::string, std::string>> Compiled::dump_passes() const {
  std::vector<std::pair<std::string, std::string>> texts;
  if (impl().last() == nullptr) return texts;
  graph::Graph graph = impl().last()->captured();
  passes::PipelineOptions options =
      plan::pipeline_options(impl().cache().options(), impl().last()->candidate());
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
