// SPDX-License-Identifier: Apache-2.0
// torch.profiler.schedule: which action belongs to a step.
#include "epilogue/profiler.h"

namespace epilogue::profiler {

Schedule schedule(ScheduleOptions o) {
  if (o.wait < 0 || o.warmup < 0 || o.active <= 0 || o.repeat < 0 || o.skip_first < 0)
    throw Error(
        "[schedule] expected wait, warmup, repeat and skip_first of 0 or more and active of 1 or "
        "more, got wait=" +
        std::to_string(o.wait) + " warmup=" + std::to_string(o.warmup) +
        " active=" + std::to_string(o.active) + " repeat=" + std::to_string(o.repeat) +
        " skip_first=" + std::to_string(o.skip_first));
  return [o](int64_t step) {
    if (step < o.skip_first) return Action::none;
    step -= o.skip_first;
    // Shifts the whole timeline: the first cycle loses its wait stage, later ones keep theirs.
    if (o.skip_first_wait != 0) step += o.wait;
    const int64_t length = o.wait + o.warmup + o.active;
    if (o.repeat > 0 && step >= o.repeat * length) return Action::none;
    const int64_t in_cycle = step % length;
    if (in_cycle < o.wait) return Action::none;
    if (in_cycle < o.wait + o.warmup) return Action::warmup;
    return in_cycle < length - 1 ? Action::record : Action::record_and_save;
  };
}

}  // namespace epilogue::profiler
