// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

void find_graph_breaks(const Explanation& e, std::vector<Finding>& out) {
  if (e.compile.frames_per_step.value_or(0) <= 1) return;
  Finding f;
  f.title = fmt::format(
      "{:.1f} different compiled regions run per step: the graph breaks, or several functions are "
      "compiled",
      *e.compile.frames_per_step);
  constexpr size_t kShown = 4;
  for (size_t i = 0; i < std::min(kShown, e.compile.regions.size()); ++i) {
    const CompiledRange& r = e.compile.regions[i];
    f.evidence.push_back(fmt::format("{}: {}, {} on the host, {}", r.name,
                                     counted(r.count, "time", "times"), duration(r.cpu_ns),
                                     counted(r.kernels, "kernel", "kernels")));
  }
  advise(f, "torch._dynamo.explain(model)(input) names the causes");
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kGraphBreaksRule = {
    .id = "graph-breaks",
    .says = "how many different compiled regions run in each step",
    .said_if = [] { return std::string("there is more than one per step"); },
    .find = find_graph_breaks,
    .where = FindingPlace::host};

}  // namespace epilogue::trace
