// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

void find_profiler_cost(const Explanation& e, std::vector<Finding>& out) {
  const ProfilerCost& cost = e.verdicts.profiler;
  if (!is_worth_it(e, to_us(cost.total_ns))) return;
  Finding f;
  f.title = fmt::format("recording cost the host about {} of {}", duration(cost.total_ns),
                        duration(e.timeline.span_ns()));
  f.evidence.push_back(fmt::format(
      "{}, {} {:.2f} us each{}", counted(e.ops, "op", "ops"),
      cost.is_measured ? "measured at" : "estimated at", cost.ns_per_op / kNsPerUs,
      cost.is_inflated ? " (shapes, stacks or memory were recorded: they cost most)" : ""));
  advise(f,
         "compare times with a run without the profiler; record without shapes, stacks and memory "
         "if the host's times matter");
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kProfilerCostRule = {
    .id = "profiler-cost",
    .says = "how long recording took on the host",
    .said_if = [] { return "it took " + over_min_share(); },
    .find = find_profiler_cost,
    .where = FindingPlace::host};

}  // namespace epilogue::trace
