// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

// "; aten::copy_ takes 3.00 ms more, aten::mm 1.00 ms"
std::string text_of_time_above(const SlowStep& step) {
  std::string text;
  for (const TimeAbove& above : step.above)
    text += text.empty() ? fmt::format("; {} takes {} more", above.name, duration(above.ns))
                         : fmt::format(", {} {}", above.name, duration(above.ns));
  return text;
}

constexpr int64_t kPausesOfBusy = 2;

// The machine had other work, and all steps make the same calls.
bool is_of_busy_machine(const Explanation& e) {
  return e.pauses.count >= kPausesOfBusy && std::ranges::all_of(e.steps, [&](const Region& step) {
           return step.ops == e.steps.front().ops;
         });
}

// A mean hides a cold first step: compare with the median.
void find_slow_steps(const Explanation& e, std::vector<Finding>& out) {
  if (e.slow_steps.empty()) return;
  Finding f;
  double extra_us = 0;
  for (const SlowStep& step : e.slow_steps) {
    extra_us += to_us(step.wall_ns - step.median_ns);
    f.evidence.push_back(fmt::format("{}: {} against a median of {}{}", step.name,
                                     duration(step.wall_ns), duration(step.median_ns),
                                     text_of_time_above(step)));
    if (step.is_slower_throughout)
      f.evidence.push_back(
          "Nearly all ops take longer in it, not some: the machine had other work, or a lower "
          "clock.");
  }
  f.title = fmt::format("{} of {} steps {} over {} times the median: read the steps, not the mean",
                        e.slow_steps.size(), e.steps.size(),
                        e.slow_steps.size() == 1 ? "takes" : "take", kSlowStep);
  const bool is_first = e.slow_steps.size() == 1 && !e.steps.empty() &&
                        e.slow_steps.front().name == e.steps.front().name;
  const bool is_throughout =
      is_of_busy_machine(e) ||
      std::ranges::all_of(e.slow_steps, [](const SlowStep& s) { return s.is_slower_throughout; });
  advise(f, is_first
                ? "leave the first step out: schedule(wait, warmup); it pays for first calls and "
                  "memory"
            : is_throughout
                ? "record again on a machine that does nothing else"
                : "compare these steps' inputs with the others' (lengths, sizes), and look "
                  "for what runs now and then: logging, checkpoints, evaluation, garbage "
                  "collection; if nothing differs, other work on the machine");
  // Other work on the machine: what it takes is no saving.
  if (is_throughout) {
    f.cost_us = extra_us;
  } else {
    f.saving_us = extra_us;
  }
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kSlowStepsRule = {
    .id = "slow-steps",
    .says = "which steps take longer than the others, and which ops take longer in them",
    .said_if =
        [] {
          return fmt::format(
              "a step takes over {} times the median of {} steps or more; a cost without a saving "
              "where nearly all ops take longer in it, or the thread was paused {} times or more "
              "elsewhere and all steps make as many calls",
              kSlowStep, kStepsToCompare, kPausesOfBusy);
        },
    .find = find_slow_steps,
    .where = FindingPlace::host};

}  // namespace epilogue::trace
