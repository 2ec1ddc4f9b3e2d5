// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/claims.h"
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

void find_recompilation(const Explanation& e, std::vector<Finding>& out) {
  const CompileSummary& c = e.compile;
  if (!is_worth_it(e, to_us(c.compile_ns))) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("torch.compile compiles {} in the recording, which takes {}",
                        counted(c.compilations, "time", "times"), duration(c.compile_ns));
  advise(f,
         c.compilations > 1
             ? "TORCH_LOGS=recompiles names what changed each time; mark_dynamic or "
               "torch.compile(dynamic=True) makes one graph for all sizes"
             : "call the function before the recording; if it occurs again, TORCH_LOGS=recompiles "
               "names what changed");
  f.saving_us = to_us(c.compile_ns);
  if (e.host)
    f.claims.push_back({{std::string(kBetweenOpsPart)}, to_us(c.compile_ns)});
  else
    claim_idle(e, f, {IdleCause::host_in_ops, IdleCause::host_between_ops}, to_us(c.compile_ns));
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kRecompilationRule = {
    .id = "recompilation",
    .says = "how long torch.compile compiled during the recording",
    .said_if = [] { return "it took " + over_min_share(); },
    .find = find_recompilation,
    .confidence = Confidence::high,
    .where = FindingPlace::host};

}  // namespace epilogue::trace
