// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/claims.h"
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

constexpr double kOverheadShare = 0.1;

bool is_time_of_host(const IdleGap& gap) {
  return gap.cause == IdleCause::host_in_ops || gap.cause == IdleCause::host_between_ops;
}

// The host's own time in ops and between them, while the device waits for what it will start.
void find_host_overhead(const Explanation& e, std::vector<Finding>& out) {
  const auto all_us = e.idle.empty() ? 0 : to_us(e.idle.front().host_ns());
  const double profiler_us = e.verdicts.whole.pct(TimePart::profiler) / 100 * wall_us(e);
  // One gap that is most of it is what idle-gap is about: other remedies help with the rest alone.
  double gap_us = 0;
  for (const IdleGap* gap : named_gaps(e))
    if (is_time_of_host(*gap) && 2 * to_us(gap->dur_ns) > all_us) gap_us = to_us(gap->dur_ns);
  const NoLaunchOp* longest = longest_no_launch(e);
  // One op that takes most of it is no habit of the program either: fewer ops would not help.
  const bool is_one_op =
      longest != nullptr && 2 * to_us(longest->max_self_ns) >= all_us - profiler_us;
  if (is_one_op) gap_us = 0;
  const double idle_us = std::max(0.0, all_us - gap_us);
  const double cost_us = std::max(0.0, idle_us - profiler_us);
  if (e.launches.launches == 0 || cost_us < kOverheadShare * wall_us(e)) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("the device idles {} while the host is in ops or between them",
                        format_duration_ns(cost_us * kNsPerUs));
  std::string parts = fmt::format("in ops and runtime calls {}, between them {}",
                                  duration(idle_ns(e, IdleCause::host_in_ops)),
                                  duration(idle_ns(e, IdleCause::host_between_ops)));
  if (idle_us > cost_us)
    parts += fmt::format("; {} of that is the profiler's",
                         format_duration_ns((idle_us - cost_us) * kNsPerUs));
  if (gap_us > 0)
    parts += fmt::format("; {} of that is one gap, which idle-gap names", duration_us(gap_us));
  f.evidence.push_back(std::move(parts));
  if (e.launches.kernels_with_launch > 0)
    f.evidence.push_back(fmt::format("{} for {}", counted(e.ops, "op", "ops"),
                                     counted(e.kernels, "kernel", "kernels")));
  if (is_one_op) {
    f.evidence.push_back(
        fmt::format("one {} takes {} of that", longest->name, duration(longest->max_self_ns)));
    advise(f, kFirstCallAdvice);
    f.saving_us = cost_us;
    claim_idle(e, f, {IdleCause::host_in_ops, IdleCause::host_between_ops}, cost_us);
    out.push_back(std::move(f));
    return;
  }
  if (launches_graphs_alone(e))
    advise(f,
           "let the host do less between graphs: one graph for more of the step, sampling and "
           "bookkeeping beside the device's work (prepare the next step while this one runs), "
           "larger batches; no waits for the device in the step (.item(), print)");
  else
    advise(f, fmt::format("let the host do less per kernel: CUDA graphs (torch.compile "
                          "mode=\"reduce-overhead\"), larger batches{}; no waits for the device "
                          "in the step (.item(), print)",
                          is_mostly_compiled(e) ? "" : ", torch.compile"));
  f.saving_us = cost_us;
  claim_idle(e, f, {IdleCause::host_in_ops, IdleCause::host_between_ops}, cost_us);
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kHostOverheadRule = {
    .id = "host-overhead",
    .says = "how long the device idled while the host was in ops or between them",
    .said_if =
        [] {
          return "it idled " + share_of_span(kOverheadShare) +
                 ", the profiler's part left out, and one gap of idle-gap that is more than half "
                 "of it";
        },
    .find = find_host_overhead,
    .where = FindingPlace::host,
    .is_general = true};

}  // namespace epilogue::trace
