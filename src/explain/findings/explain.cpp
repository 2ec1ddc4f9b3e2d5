// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/explain.h"

#include <algorithm>
#include <future>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "base/large_memory.h"
#include "explain/findings/claims.h"
#include "explain/findings/health.h"
#include "explain/findings/index.h"
#include "explain/findings/kernel_sources.h"
#include "explain/host/host_peaks.h"
#include "explain/host/idle_gaps.h"
#include "explain/index/trace_metadata.h"
#include "explain/method/method.h"
#include "explain/timeline/idle_causes.h"

namespace epilogue::trace {
namespace {

bool is_host_bound(Bound bound) { return bound == Bound::overhead || bound == Bound::launch; }

std::string name_of_device(const Trace& trace, const Timeline& timeline) {
  if (timeline.devices.empty()) return "";
  const DeviceProperties* device = find_device(trace, timeline.devices.front().device);
  return device != nullptr ? device->name : "";
}

void count_events(const Trace& trace, const Links& links, Explanation& e) {
  std::set<StringId> names;
  for (const Event& event : trace.events) {
    // Traces of 2021 record steps as ops.
    if (event.category == Category::cpu_op && !trace.name(event).starts_with("ProfilerStep#"))
      ++e.ops;
    if (event.category == Category::kernel) names.insert(event.name);
  }
  const bool is_file = !trace.import.path.empty() && !trace.selection;
  e.events = is_file ? trace.import.events : static_cast<int64_t>(trace.events.size());
  e.skipped_events = trace.import.skipped_events;
  e.kernels = links.kernels;
  e.distinct_kernels = static_cast<int64_t>(names.size());
  e.kernels_without_launch = links.kernels_without_launch;
  e.launches_without_kernel = links.launches_without_kernel;
}

// A finding costs no more than the whole trace, and saves no more than it costs.
void clamp_times(std::vector<Finding>& findings, double span_us) {
  for (Finding& f : findings) {
    if (f.saving_us) f.cost_us = std::max(f.cost_us.value_or(0), *f.saving_us);
    if (f.cost_us) f.cost_us = std::clamp(*f.cost_us, 0.0, span_us);
    if (f.saving_us) f.saving_us = std::clamp(*f.saving_us, 0.0, *f.cost_us);
  }
}

// Beside threads that wait for each other no other saving is sure.
void doubt_savings(std::vector<Finding>& findings) {
  const bool is_contended = std::any_of(findings.begin(), findings.end(), [](const Finding& f) {
    return f.id == kContentionRule.id;
  });
  for (Finding& f : findings)
    if (is_contended && f.id != kContentionRule.id && f.saving_us) f.confidence = Confidence::low;
}

// A question of which the trace does not show that anything is lost counts half; so does what no
// change removes whole: calling ops, and steps in which the machine had other work.
double order_weight(const Finding& f) {
  const double us = f.saving_us.value_or(f.cost_us.value_or(-1));
  const bool is_busy = f.id == kSlowStepsRule.id && !f.saving_us;
  const bool counts_half = f.confidence == Confidence::low || f.id == kDispatchRule.id || is_busy;
  return us * (counts_half && us > 0 ? 0.5 : 1);
}

// The verdict stays first: it frames the rest.
void sort_findings(std::vector<Finding>& findings) {
  std::stable_sort(findings.begin() + 1, findings.end(), [](const Finding& a, const Finding& b) {
    if ((a.severity == Severity::error) != (b.severity == Severity::error))
      return a.severity == Severity::error;
    // Threads that wait for each other make every other time longer than it is.
    if ((a.id == kContentionRule.id) != (b.id == kContentionRule.id))
      return a.id == kContentionRule.id;
    return order_weight(a) > order_weight(b);
  });
}

// Analyses of slow steps and queues.
void explain_waits(const Trace& trace, const Links& links, Explanation& e) {
  auto beside =
      std::async(std::launch::async, [&] { e.slow_steps = slow_steps(trace, links, e.steps); });
  e.queues = stream_queues(trace, links);
  e.chains = dispatch_chains(trace, links);
  beside.get();
}

// Frames beside the events are asked where the host's own time is a question: in a run without a
// device, and where one gap is long. Elsewhere findings are those of a trace without frames.
void drop_unasked_frames(Explanation& e) {
  const bool has_long_gap =
      !e.gaps.empty() && is_long_gap(e.gaps.front().dur_ns, e.timeline.span_ns());
  if (e.host || has_long_gap) return;
  for (DeviceMemory& memory : e.memory)
    if (memory.at_peak_by_python.empty()) memory.largest_python.reset();
}

// The visitors of all rules, each once: host_time() shows them the ops.
class Visitors {
 public:
  Visitors() {
    for (const ExplanationRule* rule : kExplanationRules)
      if (rule->visits.make != nullptr && find(*rule) == nullptr) {
        owned_.push_back(rule->visits.make());
        makers_.push_back(rule->visits.make);
        all_.push_back(owned_.back().get());
      }
    all_.push_back(&counted_);
  }

  std::span<OpVisitor* const> all() const { return all_; }
  // The ops that count, of a run without a device. Once.
  std::vector<uint32_t> counted_ops() { return std::move(counted_.ops); }
  // The visitor of a rule; null if it has none.
  const OpVisitor* find(const ExplanationRule& rule) const {
    const auto at = std::ranges::find(makers_, rule.visits.make);
    return at == makers_.end() ? nullptr : all_[static_cast<size_t>(at - makers_.begin())];
  }

 private:
  CountedVisitor counted_;
  std::vector<std::unique_ptr<OpVisitor>> owned_;
  std::vector<std::unique_ptr<OpVisitor> (*)()> makers_;
  std::vector<OpVisitor*> all_;
};

// The findings that hold of a run of XLA (JAX), and what to do there. The others speak of PyTorch's
// ops. `action` takes the place of what names PyTorch; a finding without one says what the rule
// does.
struct XlaRemedy {
  const ExplanationRule* rule;
  std::string_view action = {};
};
constexpr XlaRemedy kXlaRemedies[] = {
    {&kVerdictRule},
    {&kLostDataRule, "record again with fewer steps, while no other profiler uses the device"},
    {&kLaunchCostRule,
     "fewer, larger launches help: command buffers (--xla_gpu_enable_command_buffer=FUSION,CUBLAS, "
     "...), more work in one jitted function (jax.lax.scan over steps)"},
    {&kSyncRule,
     "read values (float(x), numpy.asarray(x)) and call block_until_ready() once every so many "
     "steps"},
    {&kPageableCopiesRule,
     "copy the next batch (jax.device_put) while the device works on this one"},
    {&kExposedCollectivesRule,
     "--xla_gpu_enable_latency_hiding_scheduler=true lets XLA run them beside other work; a device "
     "that arrives early waits here"},
    {&kSlowStepsRule,
     "leave the first step out, which compiles; of the others compare shapes (a new one compiles "
     "again: jax_log_compiles says so)"},
    {&kNoTensorCoresRule,
     "jax.config.update(\"jax_default_matmul_precision\", \"tensorfloat32\"), or bfloat16"},
    {&kOccupancyArtefactRule},
    {&kIdleGapRule,
     "call the function once before the recording, since its first call compiles it, and prepare "
     "the next batch while the device works"},
    {&kSlowCallRule, "call the function once before the recording"},
    {&kHostOverheadRule,
     "more work in each call: one jitted function for the whole step, jax.lax.scan over steps, "
     "donated arguments; no value read between steps"},
};

// Null: the rule says nothing of a run of XLA.
const XlaRemedy* xla_remedy(const ExplanationRule& rule) {
  const auto* const found = std::ranges::find(kXlaRemedies, &rule, &XlaRemedy::rule);
  return found == std::end(kXlaRemedies) ? nullptr : found;
}

void fit_to_xla(const XlaRemedy& remedy, std::vector<Finding>& findings, size_t first) {
  constexpr std::string_view kMarks[] = {"torch",       "schedule(",   "with_stack",
                                         ".item()",     "pin_memory",  "CUDA graph",
                                         "num_workers", "folder with", "synchronize()"};
  for (; first < findings.size(); ++first) {
    Finding& f = findings[first];
    const bool is_torchs = std::ranges::any_of(
        kMarks, [&](std::string_view mark) { return f.action.find(mark) != std::string::npos; });
    if (!is_torchs || remedy.action.empty()) continue;
    for (std::string& line : f.evidence)
      if (line == f.action) line = remedy.action;
    f.action = remedy.action;
  }
}

// The findings drawn from the analyses, in their order.
void add_findings(const Visitors& visitors, Recorder recorder, Explanation& e) {
  for (const ExplanationRule* rule : kExplanationRules) {
    const XlaRemedy* const xla = recorder == Recorder::xla ? xla_remedy(*rule) : nullptr;
    if (recorder == Recorder::xla && xla == nullptr) continue;
    const size_t first = e.findings.size();
    if (rule->find != nullptr) rule->find(e, e.findings);
    if (const OpVisitor* visitor = visitors.find(*rule)) rule->visits.find(e, *visitor, e.findings);
    if (xla != nullptr) fit_to_xla(*xla, e.findings, first);
    complete_findings(*rule, e.findings, first);
  }
  if (e.timeline.devices.empty())
    for (Finding& f : e.findings) f.where = FindingPlace::host;
  divide_time(e, e.findings);
  name_sources(e.compile.triton, e.findings);
  clamp_times(e.findings, to_us(e.timeline.span_ns()));
  doubt_savings(e.findings);
  sort_findings(e.findings);
}

}  // namespace

std::string_view finding_place_name(FindingPlace place) {
  return place == FindingPlace::host ? "host" : "device";
}

Explanation explain(const Trace& trace, const Links& links, const ExplainOptions& options) {
  const auto pause = [&] {
    return_freed_memory();
    if (options.between) options.between();
  };
  Visitors visitors;
  Explanation e;
  e.path = trace.import.path;
  e.pauses = options.pauses;
  e.timeline = timeline(trace, links);
  e.device = name_of_device(trace, e.timeline);
  e.has_stacks = trace.recorded.with_stack;
  // Two analyses at a time. What takes memory stands beside what takes next to none, so that the
  // most that is held at once hardly grows.
  {
    auto beside = std::async(std::launch::async, [&] {
      count_events(trace, links, e);
      e.launches = launch_stats(trace, links);
      e.device_ranges = device_ranges(trace, links);
      e.rooflines = op_rooflines(trace, links);
      e.hot_spots = hot_spots(trace, links);
      e.fused = fused_kernels(trace);
      e.occupancies = kernel_occupancies(trace);
    });
    e.host = host_time(trace, links, visitors.all(), options.cpu ? &*options.cpu : nullptr);
    if (e.host && options.cpu) compare_with_peaks(*options.cpu, *e.host);
    pause();
    e.method = method(trace, links, visitors.counted_ops(),
                      e.host ? e.host->wall_ns : e.timeline.span_ns(), e.host ? &*e.host : nullptr);
    pause();
    e.critical_path = critical_path(trace, links);
    beside.get();
  }
  pause();
  {
    const ProfilerCost profiler = profiler_cost(trace, links);
    auto beside = std::async(std::launch::async, [&] {
      e.health = health(trace, links, e.launches.kernels_before_launch, profiler);
      if (options.pauses.count > 0) add_pauses(options.pauses, e.timeline.span_ns(), e.health);
      e.compile = compile_summary(trace, links);
      e.modules = module_times(trace, links);
      const RankTrace self{trace, links};
      e.collectives = collectives({&self, 1}).ranks.front();
      e.gemms = gemm_report(trace, links);
      e.graphs = graph_report(trace, links, options.capture);
      e.serving = serving_report(trace, links);
    });
    {
      BusiestDevice busiest = busiest_device_causes(trace, links, e.timeline);
      e.gaps = idle_gaps(trace, links, busiest);
      e.idle = idle_times(trace, links, e.timeline, busiest);
      e.verdicts = judge_time(trace, links, e.timeline, std::move(busiest), profiler);
    }
    // Where there are steps, they are the regions that were judged.
    if (!links.steps.empty())
      for (const auto& [region, verdict] : e.verdicts.regions) e.steps.push_back(region);
    beside.get();
  }
  pause();
  {
    auto beside = std::async(std::launch::async, [&] { e.memory = memory_profile(trace, links); });
    e.fusions = find_fusions(trace, links,
                             {.is_host_bound = is_host_bound(e.verdicts.whole.bound),
                              .profiler_ns_per_op = e.verdicts.profiler.ns_per_op});
    beside.get();
  }
  pause();
  explain_waits(trace, links, e);
  e.method.spots = cost_spots(e.method, e.host ? &*e.host : nullptr, e.modules, e.gaps);
  drop_unasked_frames(e);
  add_findings(visitors, recorder_of(trace), e);
  return e;
}

Explanation explain(const Trace& trace, const Links& links, const std::function<void()>& between) {
  return explain(trace, links, ExplainOptions{.between = between});
}

}  // namespace epilogue::trace
