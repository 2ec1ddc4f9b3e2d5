// SPDX-License-Identifier: Apache-2.0
// CompiledBase: what a compiled object says of its plans.
#include "plan/compiled_base.h"

#include "base/units.h"
#include "graph/print.h"

namespace epilogue {
namespace plan {
namespace {

std::string inputs_text(const Entry& entry) {
  std::string text;
  const graph::Graph& graph = entry.captured();
  for (const int v : graph.inputs)
    text += (text.empty() ? "" : ", ") + graph::to_text(graph.value(v));
  return text + (entry.plan().has_free_rows() ? "; any number of rows" : "; these sizes only");
}

std::string plural(int64_t n, const std::string& word) {
  return std::to_string(n) + " " + word + (n == 1 ? "" : "s");
}

std::string note_text(const passes::Note& note) {
  std::string text = "  " + note.pass + ": " + note.what;
  if (!note.done()) return text + ": no, " + note.reason + "\n";
  if (note.bytes_saved > 0 || note.launches_saved > 0)
    text += ": saves " + format_bytes(note.bytes_saved) + " of traffic, " +
            std::to_string(note.launches_saved) +
            (note.launches_saved == 1 ? " launch" : " launches");
  return text + "\n";
}

std::string notes_text(const Entry& entry, bool done) {
  std::string text;
  for (const passes::Note& note : entry.passes().notes)
    if (note.done() == done) text += note_text(note);
  return text.empty() ? "  nothing\n" : text;
}

// The candidates of the captured call, with their times where they were measured.
std::vector<PlanCandidate> candidates_of(const Entry& entry) {
  std::vector<PlanCandidate> list;
  for (const Candidate& c : candidates(entry.trains())) {
    PlanCandidate& each = list.emplace_back(PlanCandidate{c.name, c.what, {}, false});
    each.is_chosen = c.name == entry.candidate().name;
    for (const auto& [name, us] : entry.measured().median_us)
      if (name == c.name) each.median_us = us;
  }
  return list;
}

std::string candidates_text(const Entry& entry) {
  const bool is_measured = !entry.measured().median_us.empty();
  std::string text = "plan: " + entry.candidate().name;
  if (!is_measured) {
    text += entry.is_asked_for() ? ", asked for by name" : ", by the model";
    text += "; others, with CompileOptions::tune = Tune::measure:";
    std::string separator = " ";
    for (const PlanCandidate& c : candidates_of(entry)) {
      if (c.is_chosen) continue;
      text += separator + c.name;
      separator = ", ";
    }
    return text + "\n";
  }
  text += ", the fastest when measured (medians):\n";
  for (const PlanCandidate& c : candidates_of(entry)) {
    if (!c.median_us) continue;  // the same plan as another one
    text += "  " + c.name + ": " + format_duration_ns(*c.median_us * 1e3) + ", " + c.what + "\n";
  }
  return text;
}

std::string explain(const Entry& entry) {
  const Plan& plan = entry.plan();
  std::string text = "compiled for " + inputs_text(entry) + "\n";
  text += plural(entry.kernels(), "kernel") + " for " + plural(entry.eager_kernels(), "op") +
          ":\n" + plan.describe_kernels();
  if (entry.backward_plan() != nullptr)
    text += "  the backward pass, later:\n" + entry.backward_plan()->describe_kernels();
  text += "memory traffic, each operand once: " + format_bytes(entry.moved_bytes()) + ", eager " +
          format_bytes(entry.eager_moved_bytes()) + "\n";
  text += "intermediate values: " + format_bytes(static_cast<double>(entry.intermediate_bytes())) +
          " held";
  if (plan.memory().unshared_bytes > plan.memory().arena_bytes)
    text += " (" + format_bytes(static_cast<double>(plan.memory().unshared_bytes)) +
            " if none shared memory)";
  text += "\n" + candidates_text(entry);
  text += "fused:\n" + notes_text(entry, true) + "not fused:\n" + notes_text(entry, false);
  return text;
}

std::vector<FusionNote> notes(const Entry& entry) {
  std::vector<FusionNote> notes;
  for (const passes::Note& n : entry.passes().notes)
    notes.push_back({n.pass, n.what, n.reason, n.bytes_saved, n.launches_saved});
  return notes;
}

std::string dump(const Entry& entry, CompiledDump what) {
  if (what == CompiledDump::graph) return graph::to_text(entry.captured());
  if (what == CompiledDump::plan)
    return graph::to_text(entry.plan().graph()) +
           (entry.backward_plan() != nullptr
                ? "backward, later:\n" + graph::to_text(entry.backward_plan()->graph())
                : "");
  return graph::to_dot(entry.plan().graph());
}

}  // namespace
}  // namespace plan

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
