// SPDX-License-Identifier: Apache-2.0
// Compiled: the plan cache.
#include "epilogue/compile.h"

#include <algorithm>

#include "base/clock.h"
#include "core/observer.h"
#include "graph/print.h"
#include "plan/compiled_entry.h"
#include "plan/explain.h"

namespace epilogue {

class Compiled::Impl {
 public:
  Impl(Function function, CompileOptions options)
      : function_(std::move(function)), options_(std::move(options)) {
    passes::require_known_names(options_.skip);
  }

  // The results' number is the plan's.
  plan::Entry& entry_for(std::span<const Tensor> in) {
    for (auto& entry : entries_) {
      if (!entry->accepts(in)) continue;
      std::swap(entry, entries_[0]);
      entries_[0]->require_no_gradients(in);
      return *entries_[0];
    }
    return make_entry(in);
  }

  void run(std::span<const Tensor> in, std::span<Tensor> out) {
    ++stats_.calls;
    plan::Entry& entry = entry_for(in);
    if (entry.plan().graph().outputs.size() != out.size())
      throw Error("[compile] expected a function with " + std::to_string(out.size()) +
                  " result(s), got " + std::to_string(entry.plan().graph().outputs.size()));
    entry.plan().run(in, out);
  }

  std::vector<Tensor> run(std::span<const Tensor> in) {
    // Part of another function that is being captured: that one's graph takes the ops.
    if (thread_state().capture != nullptr) return function_(in);
    std::vector<Tensor> out(entry_for(in).plan().graph().outputs.size());
    run(in, out);
    return out;
  }

  Tensor run_one(const Tensor& in) {
    if (thread_state().capture != nullptr) return function_({&in, 1}).at(0);
    Tensor out;
    run({&in, 1}, {&out, 1});
    return out;
  }

  const plan::Entry* last() const { return entries_.empty() ? nullptr : entries_[0].get(); }
  const Function& function() const { return function_; }
  const CompileOptions& options() const { return options_; }

  CompileStats stats() const {
    CompileStats s = stats_;
    s.plans = static_cast<int64_t>(entries_.size());
    if (const plan::Entry* entry = last()) {
      s.kernels = entry->plan().kernels();
      s.intermediate_bytes = entry->plan().memory().arena_bytes;
      s.eager_kernels = entry->eager_kernels();
      s.moved_bytes = entry->plan().moved_bytes();
      s.eager_moved_bytes = entry->eager_moved_bytes();
    }
    return s;
  }

  void reset() { entries_.clear(); }

 private:
  plan::Entry& make_entry(std::span<const Tensor> in) {
    ++stats_.misses;
    const int64_t begin = monotonic_ns();
    auto entry = std::make_unique<plan::Entry>(function_, in, options_);
    stats_.compile_ms += static_cast<double>(monotonic_ns() - begin) / 1e6;
    entries_.insert(entries_.begin(), std::move(entry));
    if (entries_.size() > std::max<size_t>(options_.max_plans, 1)) entries_.pop_back();
    return *entries_[0];
  }

  Function function_;
  CompileOptions options_;
  std::vector<std::unique_ptr<plan::Entry>> entries_;  // the one that ran last comes first
  CompileStats stats_;
};

Compiled::Compiled(Function function, CompileOptions options)
    : impl_(std::make_shared<Impl>(std::move(function), std::move(options))) {}

std::vector<Tensor> Compiled::operator()(std::span<const Tensor> inputs) {
  return impl_->run(inputs);
}
Tensor Compiled::operator()(const Tensor& input) { return impl_->run_one(input); }
void Compiled::prepare(std::span<const Tensor> inputs) { impl_->entry_for(inputs); }
CompileStats Compiled::stats() const { return impl_->stats(); }
void Compiled::reset() { impl_->reset(); }

std::string Compiled::explain() const {
  return impl_->last() != nullptr ? plan::explain(*impl_->last()) : "";
}

std::vector<FusionNote> Compiled::notes() const {
  std::vector<FusionNote> notes;
  if (impl_->last() == nullptr) return notes;
  notes.reserve(impl_->last()->passes().notes.size());
  for (const passes::Note& n : impl_->last()->passes().notes)
    notes.push_back({n.pass, n.what, n.reason, n.bytes_saved, n.launches_saved});
  return notes;
}

std::string Compiled::dump(CompiledDump what) const {
  const plan::Entry* entry = impl_->last();
  if (entry == nullptr) return "";
  if (what == CompiledDump::graph) return graph::to_text(entry->captured());
  if (what == CompiledDump::plan) return graph::to_text(entry->plan().graph());
  return graph::to_dot(entry->plan().graph());
}

std::vector<std::pair<std::string, std::string>> Compiled::dump_passes() const {
  std::vector<std::pair<std::string, std::string>> texts;
  if (impl_->last() == nullptr) return texts;
  graph::Graph graph = impl_->last()->captured();
  const CompileOptions& o = impl_->options();
  for (const passes::PassRecord& pass :
       passes::run_pipeline(graph, {o.skip, o.collapse_linears, true}).passes)
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
