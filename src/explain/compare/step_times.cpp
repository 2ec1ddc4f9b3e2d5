// SPDX-License-Identifier: Apache-2.0
// Times of steps over several traces, and whether those of another version are longer.
#include <algorithm>
#include <cmath>

#include "epilogue/trace/diff.h"
#include "epilogue/trace/time.h"
#include "explain/compare/mann_whitney.h"

namespace epilogue::trace {
namespace {

struct StepQuantity {
  const char* name;
  const char* doc;
  std::vector<int64_t> StepTimes::*times;
};
constexpr StepQuantity kStepQuantities[] = {
    {"wall_us_per_step", "wall time", &StepTimes::wall_ns},
    {"in_ops_us_per_step", "time in ops on the host", &StepTimes::in_ops_ns},
    {"device_us_per_step", "time of the device work that it launched", &StepTimes::device_ns},
};

int64_t median_of(std::vector<int64_t> values) {
  return distribution(std::move(values)).value_or(Distribution()).median_ns;
}

bool is_measured(const std::vector<int64_t>& times) {
  return std::any_of(times.begin(), times.end(), [](int64_t ns) { return ns > 0; });
}

}  // namespace

void StepTimes::add(const Trace& trace, const Links& links) {
  ++traces;
  for (const Region& step : steps(trace, links)) {
    wall_ns.push_back(step.wall_ns());
    in_ops_ns.push_back(step.cpu_op_ns);
    device_ns.push_back(step.launched_work_ns);
  }
}

StepComparison compare_steps(const StepTimes& before, const StepTimes& after,
                             const StepComparisonOptions& options) {
  StepComparison result;
  result.before_traces = before.traces;
  result.after_traces = after.traces;
  result.before_steps = static_cast<int64_t>(before.wall_ns.size());
  result.after_steps = static_cast<int64_t>(after.wall_ns.size());
  if (before.wall_ns.empty() || after.wall_ns.empty()) return result;
  std::vector<const StepQuantity*> measured;
  for (const StepQuantity& q : kStepQuantities)
    if (is_measured(before.*q.times) && is_measured(after.*q.times)) measured.push_back(&q);
  if (measured.empty()) return result;
  // Each quantity is one more chance to be wrong.
  result.p_needed = options.alpha / static_cast<double>(measured.size());
  result.smallest_p = smallest_p(before.wall_ns.size(), after.wall_ns.size());
  result.can_decide = result.smallest_p <= result.p_needed;
  for (const StepQuantity* q : measured) {
    StepChange& c = result.quantities.emplace_back();
    c.name = q->name;
    c.doc = q->doc;
    const std::vector<int64_t>& old_times = before.*q->times;
    const std::vector<int64_t>& new_times = after.*q->times;
    const MannWhitney test = mann_whitney(old_times, new_times);
    c.before_ns = median_of(old_times);
    c.after_ns = median_of(new_times);
    c.shift_ns = median_difference(old_times, new_times);
    c.shift_pct = c.before_ns > 0 ? c.shift_ns / static_cast<double>(c.before_ns) * 100 : 0;
    c.superiority = test.superiority;
    c.is_exact = test.is_exact;
    c.p = c.shift_ns < 0 ? test.p_smaller : test.p_larger;
    const bool is_certain = result.can_decide && c.p <= result.p_needed;
    const bool is_large = std::abs(c.shift_pct) >= options.tolerance_pct;
    c.is_slower = is_certain && is_large && c.shift_ns > 0;
    c.is_faster = is_certain && is_large && c.shift_ns < 0;
    c.is_within_tolerance = is_certain && !is_large;
    result.has_regression = result.has_regression || c.is_slower;
  }
  return result;
}

}  // namespace epilogue::trace
