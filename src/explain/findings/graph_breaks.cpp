// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

// Empty if the graph does not break, as far as the trace tells.
std::string title_of(const CompileSummary& compile) {
  if (compile.graph_breaks_per_step.value_or(0) > 0)
    return fmt::format("the graph breaks {:.1f} times per step: {:.1f} compiled regions run",
                       *compile.graph_breaks_per_step, *compile.regions_per_step);
  if (compile.graph_breaks > 0)
    return fmt::format("the graph breaks {}: compiled regions run within others",
                       counted(compile.graph_breaks, "time", "times"));
  if (const double frames = compile.frames_per_step.value_or(0); frames > 1)
    return fmt::format(
        "{:.1f} different compiled regions run per step: the graph breaks, or several functions "
        "are compiled",
        frames);
  return "";
}

void find_graph_breaks(const Explanation& e, std::vector<Finding>& out) {
  Finding f;
  f.title = title_of(e.compile);
  if (f.title.empty()) return;
  constexpr size_t kShown = 4;
  for (size_t i = 0; i < std::min(kShown, e.compile.regions.size()); ++i) {
    const CompiledRange& r = e.compile.regions[i];
    f.evidence.push_back(fmt::format("{}: {}, {} on the host, {}", r.name,
                                     counted(r.count, "time", "times"), duration(r.cpu_ns),
                                     counted(r.kernels, "kernel", "kernels")));
  }
  if (e.compile.outside_graphs_ns > 0)
    f.evidence.push_back(
        fmt::format("{} of the regions' time is in no compiled graph: Python, and "
                    "ops that run eagerly",
                    duration(e.compile.outside_graphs_ns)));
  advise(f, "torch._dynamo.explain(model)(input) names the causes");
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kGraphBreaksRule = {
    .id = "graph-breaks",
    .says =
        "how often compiled regions continue behind a graph break in each step, or how many "
        "different ones run",
    .said_if =
        [] {
          return std::string(
              "a region runs within another (a frame that resumes), or there is more than one per "
              "step");
        },
    .find = find_graph_breaks,
    .where = FindingPlace::host};

}  // namespace epilogue::trace
