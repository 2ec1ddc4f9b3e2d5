// SPDX-License-Identifier: Apache-2.0
// Explanation of a trace: all analyses, the findings, and oddities of the recording.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/base/result.h"
#include "epilogue/trace/critical_path.h"
#include "epilogue/trace/event.h"
#include "epilogue/trace/fusion.h"
#include "epilogue/trace/gemms.h"
#include "epilogue/trace/host.h"
#include "epilogue/trace/links.h"
#include "epilogue/trace/memory.h"
#include "epilogue/trace/method.h"
#include "epilogue/trace/queues.h"
#include "epilogue/trace/ranks.h"
#include "epilogue/trace/serving.h"
#include "epilogue/trace/time.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

// --- Health -------------------------------------------------------------------------------------
// Gaps and oddities of a trace: to be read before any number is believed.

enum class Severity : uint8_t {
  info,     // worth knowing
  warning,  // some numbers are off or missing
  error,    // what one would look for is not there
};
std::string_view severity_name(Severity severity);  // "info"

struct HealthItem {
  std::string id;  // stable, for scripts: "kernels-without-launch"
  Severity severity = Severity::info;
  int64_t count = 0;   // events concerned; 0 if it is not about events
  std::string detail;  // one or two sentences
};

// The gravest first. The last item is always "era": which profiler wrote the trace.
std::vector<HealthItem> health(const Trace& trace, const Links& links);

// TensorBoard's plug-in calls a "Record Window End" later than this a fault of the profiler.
inline constexpr int64_t kFarWindowEndNs = 24LL * 3600 * 1'000'000'000;

// --- Explanation of one trace -------------------------------------------------------------------
// All analyses of a trace, and the findings drawn from them.

// Whose time a finding is about.
enum class FindingPlace : uint8_t { device, host };
std::string_view finding_place_name(FindingPlace place);  // "device"

// Where a kernel comes from, as the trace recorded it.
struct KernelSource {
  std::string kernel;                  // "triton_poi_fused_add_gelu_0"
  std::string file;                    // its Python source
  int64_t files = 1;                   // different sources that have a kernel of this name
  std::vector<std::string> fused_ops;  // as its name says: "add", "gelu"
};

// Time that a finding is about: of ops by their names, or of another part of the run.
struct Claim {
  // Full names; "between ops", "calling ops", "data" of a run without a device; "idle: sync" (each
  // IdleCause) of a device's.
  std::vector<std::string> ops;
  double us = 0;
};

// One thing worth knowing, with what it rests on.
struct Finding {
  std::string id;  // stable, for scripts: "fusion"; docs/findings.md has all
  Severity severity = Severity::info;
  std::string title;                  // one line
  std::vector<std::string> evidence;  // sentences with numbers
  // Estimated time that acting on it would save over the whole trace; empty if it is no advice
  // or nothing can be said. Savings of several findings may be the same time.
  std::optional<double> saving_us;
  // The present cost: never less than the saving, never more than the span. Empty if it is no
  // cost.
  std::optional<double> cost_us;
  // How sure the saving (else the cost) is; empty if neither is given.
  std::optional<Confidence> confidence;
  std::string action;  // what to do, one sentence, also in the evidence; "" if there is no advice
  // The cost, by what it is the time of. The findings divide the run's time: what one has claimed,
  // a later one cannot, and costs that much less. Empty: it takes no part in that.
  std::vector<Claim> claims;
  std::optional<FindingPlace> where;  // rules that do not say it leave it to their row
  std::vector<std::string> kernels;   // that it is about, beside those that its sentences name
  // Kernels whose source was recorded. Also in the evidence.
  std::vector<KernelSource> sources;

  // The rest of the cost if the whole saving is reached; empty if unknown.
  std::optional<double> remains_us() const {
    if (!saving_us || !cost_us) return std::nullopt;
    return *cost_us - *saving_us;
  }
};

struct Explanation {
  std::string path;    // of the file; "" for a recorded trace
  std::string device;  // "NVIDIA H100 80GB HBM3"; "" unknown
  int64_t events = 0;
  int64_t skipped_events = 0;
  int64_t ops = 0;
  int64_t kernels = 0;
  int64_t distinct_kernels = 0;
  int64_t kernels_without_launch = 0;
  int64_t launches_without_kernel = 0;
  bool has_stacks = false;
  Timeline timeline;
  Verdicts verdicts;
  std::vector<Region> steps;  // empty if the trace has no ProfilerStep
  std::vector<SlowStep> slow_steps;
  std::vector<DeviceIdle> idle;
  std::vector<IdleGap> gaps;     // of the busiest device, the longest first
  std::optional<HostTime> host;  // of a run without a device
  Method method;                 // what holds the time, op by op
  std::optional<CriticalPath> critical_path;
  LaunchStats launches;
  std::vector<StreamQueue> queues;
  std::vector<DeviceRange> device_ranges;
  Pauses pauses;  // no part of any time here
  std::vector<HealthItem> health;
  GemmReport gemms;
  std::vector<OpRoofline> rooflines;  // of ops that are no matrix products
  FusionFindings fusions;
  std::vector<FusedKernel> fused;  // what was fused already
  DispatchChains chains;
  HotSpots hot_spots;
  std::vector<DeviceMemory> memory;
  CompileSummary compile;
  std::vector<KernelOccupancy> occupancies;
  std::vector<ModuleTime> modules;
  RankCollectives collectives;  // of this rank alone
  GraphReport graphs;
  ServingReport serving;
  // The verdict first, errors next, then by saving, else by cost: the largest first.
  std::vector<Finding> findings;
};

struct ExplainOptions {
  std::optional<CpuPeaks> cpu = {};  // what products of a run without a device are compared with
  // Names kernels of replayed graphs by the order of its own. Must outlive the call.
  const GraphReference* capture = nullptr;
  // Called between the analyses, on the caller's thread; what it throws ends the call.
  std::function<void()> between = {};
  Pauses pauses = {};  // said among the health
};
// Half of the analyses run on another thread: `trace` and `links` must not change meanwhile.
Explanation explain(const Trace& trace, const Links& links, const ExplainOptions& options);
Explanation explain(const Trace& trace, const Links& links,
                    const std::function<void()>& between = {});

// --- Explanation of several ranks ---------------------------------------------------------------
// Several ranks of one run, side by side: who waits for whom, and what communication hides.

// Fields that the trace does not give are empty.
struct RankSummary {
  std::string path;
  int64_t rank = 0;
  bool is_truncated = false;   // the trace ends early: what is said is of the part before
  std::optional<Bound> bound;  // empty: it ends before any device work
  int64_t span_ns = 0;
  std::optional<double> busy_pct;
  // Both are empty if the trace ends early or has no kernel.
  std::optional<int64_t> communication_ns;  // union of the collectives' kernels
  std::optional<int64_t> overlap_ns;        // of that, beside other kernels
  std::optional<DeviceTime> time;           // empty as those are
  // For ranks that arrived later, over the matched collectives; empty if none is matched.
  std::optional<int64_t> wait_ns;
};

// Ranks `first` to `last`, both included.
struct RankRange {
  int64_t first = 0;
  int64_t last = 0;
  bool operator==(const RankRange&) const = default;
};

struct RanksExplanation {
  std::vector<RankSummary> ranks;  // in the order given
  std::optional<int64_t> world_size;
  // Among all ranks of the run; if their number is unknown, among those between the given ones.
  std::vector<RankRange> missing;
  Collectives collectives;
  std::vector<KernelOverRanks> kernels;  // the largest first
  // Files of the folder that are no traces: one line each, with the reason.
  std::vector<std::string> left_out;
  std::vector<Finding> findings;

  // False: a rank is missing or its trace ends early, so that CollectiveWaits are bounds.
  bool has_all_ranks() const;
  // False: RankSummary::wait_ns is a lower bound, also because a kind is not matched.
  bool waits_are_whole() const { return has_all_ranks() && collectives.unmatched.empty(); }
};

RanksExplanation explain_ranks(std::span<const RankTrace> ranks);

// --- Quantities ---------------------------------------------------------------------------------
// Named numbers of a trace, and expectations about them: "kernels_per_step <= 5".

// A number that a trace may or may not give. Names carry their unit (_us, _pct, _bytes).
struct Quantity {
  std::string name;
  std::string doc;              // one line
  std::optional<double> value;  // empty: this trace cannot give it
};

// All quantities, always the same names in the same order. "Per step" divides by the number of
// ProfilerStep annotations (whole steps only); kernels belong to the step that launched them.
std::vector<Quantity> quantities(const Trace& trace);

// NAME OP NUMBER with OP one of == != < <= > >=.
struct Expectation {
  std::string text;
  std::string quantity;
  std::string op;
  double expected = 0;
};
// Fails with one line on a bad form; the name is not looked up.
Result<Expectation> parse_expectation(std::string_view text);

struct Judgement {
  Expectation expectation;
  std::optional<double> found;
  bool known = true;   // false: there is no quantity of that name
  bool holds = false;  // never true without a found value
};
Judgement judge(const Expectation& expectation, const std::vector<Quantity>& quantities);

}  // namespace epilogue::trace

#pragma GCC visibility pop
