// SPDX-License-Identifier: Apache-2.0
// Findings about the run as a whole: what limits it, and steps that are not like the others.
#include <fmt/format.h>

#include "analysis/findings/rules.h"

namespace epilogue::trace {
namespace {

void find_verdict(const Explanation& e, std::vector<Finding>& out) {
  Finding f;
  const Verdict& whole = e.verdicts.whole;
  f.title = bound_name(whole.bound);
  if (const std::optional<double> busy = e.timeline.busy_pct()) {
    f.title += fmt::format(": the device works {:.0f} % of the time", *busy);
    if (whole.judged_pct && (*busy >= kDeviceBoundPct) != (*whole.judged_pct >= kDeviceBoundPct))
      f.title += fmt::format(", {:.1f} % as judged", *whole.judged_pct);
  }
  if (whole.bound == Bound::unknown) f.title += ", and the trace does not show why it idles";
  f.evidence = e.verdicts.whole.evidence;
  out.push_back(std::move(f));
}

// A mean hides a cold first step: compare with the median.
void find_slow_steps(const Explanation& e, std::vector<Finding>& out) {
  constexpr double kSlow = 1.5;
  constexpr size_t kEnough = 3;
  if (e.steps.size() < kEnough) return;
  std::vector<int64_t> walls;
  walls.reserve(e.steps.size());
  for (const Region& step : e.steps) walls.push_back(step.wall_ns());
  const int64_t median = distribution(std::move(walls)).value_or(Distribution()).median_ns;
  Finding f;
  double extra_us = 0;
  for (const Region& step : e.steps) {
    if (static_cast<double>(step.wall_ns()) < kSlow * static_cast<double>(median)) continue;
    extra_us += to_us(step.wall_ns() - median);
    f.evidence.push_back(fmt::format("{}: {} against a median of {}", step.name,
                                     duration(step.wall_ns()), duration(median)));
  }
  if (f.evidence.empty()) return;
  f.title = fmt::format("{} of {} steps {} over {} times the median: read the steps, not the mean",
                        f.evidence.size(), e.steps.size(),
                        f.evidence.size() == 1 ? "takes" : "take", kSlow);
  f.saving_us = extra_us;
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kVerdictRule = {"verdict", find_verdict};
constinit const ExplanationRule kSlowStepsRule = {"slow-steps", find_slow_steps};

}  // namespace epilogue::trace
