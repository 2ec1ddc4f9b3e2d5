// SPDX-License-Identifier: Apache-2.0
// Findings about what the host does to start work: launches, ops that launch nothing, graph breaks.
#include <fmt/format.h>

#include <algorithm>

#include "explain/findings/rules.h"
#include "explain/index/aten_ops.h"

namespace epilogue::trace {
namespace {

// Half of the kernels or more are started by compiled code.
bool is_mostly_compiled(const Explanation& e) {
  const std::vector<CompiledRange>& ranges =
      e.compile.regions.empty() ? e.compile.graphs : e.compile.regions;
  int64_t kernels = 0;
  for (const CompiledRange& range : ranges) kernels += range.kernels;
  return kernels > 0 && 2 * kernels >= e.kernels;
}

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
    advise(f,
           "fewer, larger launches help: CUDA graphs (torch.compile mode=\"reduce-overhead\"), "
           "fusion, larger batches");
  f.saving_us = to_us(idle);
  out.push_back(std::move(f));
}

constexpr std::string_view kFirstCallAdvice =
    "leave first calls out of the trace: schedule(wait, warmup), or record with_stack";

const NoLaunchOp* longest_no_launch(const Explanation& e) {
  const auto longest = std::ranges::max_element(e.chains.no_launch, {}, &NoLaunchOp::max_self_ns);
  return longest == e.chains.no_launch.end() ? nullptr : &*longest;
}

void find_no_launch_ops(const Explanation& e, std::vector<Finding>& out) {
  int64_t self_ns = 0;
  int64_t count = 0;
  int64_t view_ns = 0;
  const NoLaunchOp* longest = longest_no_launch(e);
  for (const NoLaunchOp& op : e.chains.no_launch) {
    self_ns += op.self_ns;
    if (op_class(op.name) == OpClass::view) view_ns += op.self_ns;
    count += op.count;
  }
  if (!is_worth_it(e, to_us(self_ns))) return;
  Finding f;
  // One op that takes more than all others together is no habit of the program.
  const bool is_one = 2 * longest->max_self_ns > self_ns;
  f.title = is_one ? fmt::format("one {} starts no device work and takes {} of the host's time",
                                 longest->name, duration(longest->max_self_ns))
                   : fmt::format("{} start no device work and take {} of the host's time",
                                 counted(count, "op", "ops"), duration(self_ns));
  constexpr size_t kShown = 4;
  for (size_t i = 0; i < std::min(kShown, e.chains.no_launch.size()); ++i) {
    const NoLaunchOp& op = e.chains.no_launch[i];
    f.evidence.push_back(fmt::format("{}: {}, {}", op.name, counted(op.count, "time", "times"),
                                     duration(op.self_ns)));
  }
  const bool is_views = 2 * view_ns >= self_ns;
  if (is_one) {
    f.evidence.emplace_back(
        "a first call may pay for initialisation; if it occurs again, its stack says where it "
        "comes from");
    advise(f, kFirstCallAdvice);
  } else {
    f.evidence.emplace_back(is_views
                                ? "mostly views and allocations before kernels"
                                : "mostly no views and no allocations: this is work on the host, "
                                  "or ops that call others");
    if (is_views)
      advise(f, is_mostly_compiled(e)
                    ? "CUDA graphs (torch.compile mode=\"reduce-overhead\") leave out views and "
                      "allocations"
                    : "torch.compile leaves out most views and allocations, CUDA graphs leave out "
                      "all");
  }
  // What the device did not wait for is not saved.
  if (!is_one && 2 * view_ns >= self_ns && e.verdicts.whole.bound == Bound::overhead)
    f.saving_us = to_us(std::min(self_ns, idle_ns(e, IdleCause::host_in_ops)));
  out.push_back(std::move(f));
}

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

void find_recompilation(const Explanation& e, std::vector<Finding>& out) {
  const CompileSummary& c = e.compile;
  if (!is_worth_it(e, to_us(c.compile_ns))) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("torch.compile compiles {} in the recording, which takes {}",
                        counted(c.compilations, "time", "times"), duration(c.compile_ns));
  advise(f,
         c.compilations > 1
             ? "TORCH_LOGS=recompiles names what changed each time; mark_dynamic or "
               "torch.compile(dynamic=True) makes one graph for all sizes"
             : "call the function before the recording; if it occurs again, TORCH_LOGS=recompiles "
               "names what changed");
  f.saving_us = to_us(c.compile_ns);
  out.push_back(std::move(f));
}

// The host's own time in ops and between them, while the device waits for what it will start.
void find_host_overhead(const Explanation& e, std::vector<Finding>& out) {
  constexpr double kOverheadShare = 0.1;
  const auto idle_us = e.idle.empty() ? 0 : to_us(e.idle.front().host_ns());
  const double profiler_us = e.verdicts.whole.pct(TimePart::profiler) / 100 * wall_us(e);
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
  f.evidence.push_back(std::move(parts));
  if (e.launches.kernels_with_launch > 0)
    f.evidence.push_back(fmt::format("{} for {}", counted(e.ops, "op", "ops"),
                                     counted(e.kernels, "kernel", "kernels")));
  // One op that takes most of it is no habit of the program: fewer ops would not help.
  const NoLaunchOp* longest = longest_no_launch(e);
  if (longest != nullptr && 2 * to_us(longest->max_self_ns) >= cost_us) {
    f.evidence.push_back(
        fmt::format("one {} takes {} of that", longest->name, duration(longest->max_self_ns)));
    advise(f, kFirstCallAdvice);
    f.saving_us = cost_us;
    out.push_back(std::move(f));
    return;
  }
  advise(f, fmt::format("let the host do less per kernel: CUDA graphs (torch.compile "
                        "mode=\"reduce-overhead\"), larger batches{}; no waits for the device "
                        "in the step (.item(), print)",
                        is_mostly_compiled(e) ? "" : ", torch.compile"));
  f.saving_us = cost_us;
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kLaunchCostRule = {"launch-cost", find_launch_cost,
                                                   Confidence::medium, FindingPlace::host};
constinit const ExplanationRule kNoLaunchOpsRule = {"no-launch-ops", find_no_launch_ops,
                                                    Confidence::medium, FindingPlace::host};
constinit const ExplanationRule kRecompilationRule = {"recompilation", find_recompilation,
                                                      Confidence::high, FindingPlace::host};
constinit const ExplanationRule kHostOverheadRule = {"host-overhead", find_host_overhead,
                                                     Confidence::medium, FindingPlace::host};
constinit const ExplanationRule kGraphBreaksRule = {"graph-breaks", find_graph_breaks,
                                                    Confidence::medium, FindingPlace::host};

}  // namespace epilogue::trace
