// SPDX-License-Identifier: Apache-2.0
// CompiledBase: what a compiled object says of its plans.
#include "plan/compiled_base.h"

#include "plan/explain.h"

namespace epilogue {

CompiledBase::Plans& CompiledBase::plans() const {
  if (plans_ == nullptr)
    throw Error("[" + std::string(op_) + "] expected a " + name_ + ", got one that was moved from");
  return *plans_;
}

std::string CompiledBase::explain() const {
  const std::shared_ptr<const plan::Entry> last = plans().last();
  return last != nullptr ? plan::explain(*last) : "";
}

std::vector<FusionNote> CompiledBase::notes() const {
  const std::shared_ptr<const plan::Entry> last = plans().last();
  return last != nullptr ? plan::notes(*last) : std::vector<FusionNote>();
}

std::string CompiledBase::dump(CompiledDump what) const {
  const std::shared_ptr<const plan::Entry> last = plans().last();
  return last != nullptr ? plan::dump(*last, what) : "";
}

std::string CompiledBase::choice() const {
  const std::shared_ptr<const plan::Entry> last = plans().last();
  return last != nullptr ? last->candidate().name : "";
}

std::vector<PlanCandidate> CompiledBase::candidates() const {
  const std::shared_ptr<const plan::Entry> last = plans().last();
  return last != nullptr ? plan::candidates_of(*last) : std::vector<PlanCandidate>();
}

std::vector<std::pair<std::string, std::string>> CompiledBase::dump_passes() const {
  std::vector<std::pair<std::string, std::string>> texts;
  const std::shared_ptr<const plan::Entry> last = plans().last();
  if (last == nullptr) return texts;
  graph::Graph graph = last->captured();
  passes::PipelineOptions options =
      plan::pipeline_options(plans().cache().options(), last->candidate());
  options.keep_texts = true;
  for (const passes::PassRecord& pass : passes::run_pipeline(graph, options).passes)
    texts.emplace_back(pass.name, pass.skipped ? "skipped\n" : pass.text);
  return texts;
}

CompileStats CompiledBase::stats() const { return plans().cache().stats(); }
void CompiledBase::reset() { plans().cache().clear(); }

}  // namespace epilogue
