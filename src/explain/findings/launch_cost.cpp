// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/claims.h"
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

void find_launch_cost(const Explanation& e, std::vector<Finding>& out) {
  const LaunchStats& l = e.launches;
  const int64_t idle = idle_ns(e, IdleCause::launch);
  if (l.launches == 0 || !is_worth_it(e, to_us(idle))) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("the device waits {} while the host launches {}", duration(idle),
                        counted(l.launches, "time", "times"));
  if (l.kernels_shorter_than_launch > 0)
    f.evidence.push_back(fmt::format("{} of {} less time than the call that launches {}",
                                     format_count(l.kernels_shorter_than_launch),
                                     counted(l.kernels_with_launch, "kernel", "kernels") +
                                         (l.kernels_shorter_than_launch == 1 ? " takes" : " take"),
                                     l.kernels_shorter_than_launch == 1 ? "it" : "them"));
  if (!l.launching_calls.empty()) {
    const CallStats& call = l.launching_calls.front();
    f.evidence.push_back(
        times_line(call.name, counted(call.time.count, "call", "calls"), call.time));
  }
  const std::optional<SlowCall>& slow = l.outlier;
  if (slow)
    f.evidence.push_back(fmt::format(
        "one {} takes {} of that{}", slow->name, duration(slow->dur_ns),
        slow->is_first ? ", the first launch of its kernel: most likely it loads code to the "
                         "device; calls before the recording (a warm-up) take it out"
                       : ": look at that one, not at their number"));
  // Beside an outlier, launches that take less of the wall time are not what to work on.
  constexpr double kMinRestShare = 0.05;
  if (!slow || to_us(idle - slow->dur_ns) >= kMinRestShare * wall_us(e))
    advise(f, launches_graphs_alone(e)
                  ? "all launches are of graphs: one graph for more of the step (its launch takes "
                    "longer with more nodes, but once), fewer nodes by fusion, or larger batches"
                  : "fewer, larger launches help: CUDA graphs (torch.compile "
                    "mode=\"reduce-overhead\"), fusion, larger batches");
  else
    f.action = slow->is_first ? "launch it once before the recording (a warm-up)"
                              : "look at that launch, not at the number of launches";
  f.saving_us = to_us(idle);
  claim_idle(e, f, {IdleCause::launch}, to_us(idle));
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kLaunchCostRule = {
    .id = "launch-cost",
    .says = "how long the device waited while the host was in launch calls",
    .said_if = [] { return "it waited " + over_min_share(); },
    .find = find_launch_cost,
    .where = FindingPlace::host};

}  // namespace epilogue::trace
