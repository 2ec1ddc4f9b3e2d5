// SPDX-License-Identifier: Apache-2.0
// Findings about the trace itself: what was lost, what recording cost, what was recorded wrongly.
#include <fmt/format.h>

#include "explain/findings/rules.h"

namespace epilogue::trace {
namespace {

// Each has the id of what is wrong with the trace.
void find_lost_data(const Explanation& e, std::vector<Finding>& out) {
  for (const HealthItem& item : e.health)
    if (item.severity == Severity::error)
      out.push_back({item.id, Severity::error, item.detail, {}, {}});
}

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
  out.push_back(std::move(f));
}

void find_occupancy_artefact(const Explanation& e, std::vector<Finding>& out) {
  int64_t kernels = 0;
  const KernelOccupancy* longest = nullptr;
  for (const KernelOccupancy& k : e.occupancies) {
    if (!k.is_recorded_zero_artefact) continue;
    kernels += k.count;
    if (longest == nullptr) longest = &k;
  }
  if (longest == nullptr) return;
  Finding f;
  f.title = fmt::format("{} recorded with 0 % occupancy, which is wrong",
                        counted(kernels, "kernel is", "kernels are"));
  f.evidence.push_back(longest->kernel + ": " + longest->note);
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kLostDataRule = {"", find_lost_data};
constinit const ExplanationRule kProfilerCostRule = {"profiler-cost", find_profiler_cost,
                                                     Confidence::medium, FindingPlace::host};
constinit const ExplanationRule kOccupancyArtefactRule = {"occupancy-artefact",
                                                          find_occupancy_artefact};

}  // namespace epilogue::trace
