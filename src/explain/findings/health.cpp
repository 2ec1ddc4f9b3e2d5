// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "base/units.h"
#include "epilogue/trace/time.h"
#include "explain/findings/health.h"
#include "explain/index/trace_metadata.h"
#include "trace/step_name.h"

namespace epilogue::trace {
namespace {

constexpr std::array<std::string_view, 3> kSeverityNames = {"info", "warning", "error"};

// "a name is not closed (3), ..."
std::string reasons_of(const std::vector<ImportNote>& notes) {
  std::string reasons;
  for (const ImportNote& note : notes)
    reasons += fmt::format("{}{} ({})", reasons.empty() ? "" : ", ", note.detail, note.count);
  return reasons;
}

// Counts of one pass over the events.
struct Counts {
  int64_t ops = 0;
  int64_t ops_with_shapes = 0;
  int64_t runtime_calls = 0;
  int64_t captures = 0;  // calls that begin the capture of a graph
  int64_t python_frames = 0;
  int64_t overhead_events = 0;
  int64_t overhead_ns = 0;
  int64_t negative_durations = 0;
  int64_t work_without_time = 0;
  int64_t last_end_ns = INT64_MIN;

  explicit Counts(const Trace& trace) {
    for (const Event& e : trace.events) {
      if (e.dur_ns < 0) ++negative_durations;
      last_end_ns = std::max(last_end_ns, e.end_ns());
      if (is_launch_category(e.category)) {
        ++runtime_calls;
        if (trace.name(e).find("BeginCapture") != std::string_view::npos) ++captures;
      } else if (e.category == Category::cpu_op) {
        ++ops;
        const OpArgs* args = trace.op_args(e);
        if (args != nullptr && args->inputs != kNone) ++ops_with_shapes;
      } else if (e.category == Category::python_function) {
        ++python_frames;
      } else if (e.category == Category::overhead) {
        ++overhead_events;
        overhead_ns += e.dur_ns;
      } else if (e.category == Category::kernel && e.ts_ns == 0 && e.dur_ns == 0) {
        ++work_without_time;
      }
    }
    python_frames += trace.import.python_functions_left_out;
  }
};

// Kernels that start before the one before them on their stream has ended.
int64_t overlapping_kernels(const Trace& trace, const Links& links) {
  std::unordered_map<int64_t, int64_t> reached_by_stream;
  int64_t overlaps = 0;
  for (const uint32_t i : links.device_work) {
    const Event& e = trace.events[i];
    if (e.category != Category::kernel) continue;
    // Streams of several devices may share a number; mixing in the device keeps them apart.
    const int64_t key = e.tid ^ static_cast<int64_t>(static_cast<uint64_t>(e.pid) << 48);
    const auto [reached, is_new] = reached_by_stream.try_emplace(key, e.end_ns());
    if (is_new) continue;
    if (e.ts_ns < reached->second) ++overlaps;
    reached->second = std::max(reached->second, e.end_ns());
  }
  return overlaps;
}

// Numbers that are not there between the first and the last ProfilerStep#N.
int64_t missing_steps(const Trace& trace, const Links& links) {
  std::vector<int64_t> numbers;
  for (const uint32_t i : links.steps) {
    if (const std::optional<int64_t> number = step_number(trace.name(trace.events[i])))
      numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  int64_t missing = 0;
  for (size_t i = 1; i < numbers.size(); ++i)
    missing += std::max<int64_t>(numbers[i] - numbers[i - 1] - 1, 0);
  return missing;
}

class Examiner {
 public:
  Examiner(const Trace& trace, const Links& links, int64_t kernels_before_launch,
           const ProfilerCost& profiler)
      : trace_(trace),
        links_(links),
        kernels_before_launch_(kernels_before_launch),
        profiler_(profiler),
        counts_(trace) {}

  std::vector<HealthItem> examine() {
    import();
    launches();
    links();
    times();
    recording();
    std::stable_sort(items_.begin(), items_.end(), [](const HealthItem& a, const HealthItem& b) {
      return a.severity > b.severity;
    });
    items_.push_back({"era", Severity::info, 0, trace_era(trace_)});
    return std::move(items_);
  }

 private:
  // Does not add what concerns no event.
  void add(const char* id, Severity severity, int64_t count, std::string detail) {
    if (count > 0) items_.push_back({id, severity, count, std::move(detail)});
  }

  void import() {
    const ImportReport& import = trace_.import;
    add("truncated", Severity::error, import.is_truncated ? 1 : 0,
        "The file ends early: what came after the cut is missing.");
    add("skipped-events", Severity::warning, import.skipped_events,
        "Events that could not be read: " + reasons_of(import.skips) + ".");
    std::vector<ImportNote> mended;
    int64_t repairs = 0;
    for (const ImportNote& note : import.repairs) {
      if (note.is_doubtful) {
        add(note.id.c_str(), Severity::warning, note.count,
            "Read with a doubt: " + reasons_of({note}) + ".");
      } else {
        mended.push_back(note);
        repairs += note.count;
      }
    }
    add("repaired-events", Severity::info, repairs,
        "Read all the same: " + reasons_of(mended) + ".");
    add("negative-durations", Severity::warning, counts_.negative_durations,
        "Events that end before they start count as empty.");
  }

  void launches() {
    const int64_t lost = links_.launches_without_kernel;
    const auto all = static_cast<int64_t>(links_.launches.size());
    if (links_.kernels == 0 && lost > 0) {
      add("kernel-data-lost", Severity::error, lost,
          counted(all, "launch", "launches") +
              " but no kernel: kernel data was lost. Nothing can be said of the device.");
    }
    const char* capture =
        counts_.captures > 0 ? " Graphs were captured: launches during a capture run nothing." : "";
    add("launches-without-kernel", Severity::warning, lost,
        fmt::format("Launches without a kernel in the trace: {} of {}. Device time is missing.{}",
                    format_count(lost), format_count(all), capture));
    const int64_t early = links_.kernels_without_launch;
    if (early > 0 && counts_.runtime_calls == 0) {
      add("no-launch-calls", Severity::warning, early,
          "The trace has kernels but no launch calls: kernels cannot be attributed by launch.");
    } else {
      add("kernels-without-launch", Severity::info, early,
          fmt::format(
              "Kernels that were launched before the window, or whose launch was lost: {} of "
              "{}. They count for no op and no step.",
              format_count(early), format_count(links_.kernels)));
    }
    add("kernels-launched-outside", Severity::info, links_.kernels_launched_outside,
        fmt::format(
            "Kernels that ran in this part of the trace and were launched outside of it: {} "
            "of {}. They count for no op and no step.",
            format_count(links_.kernels_launched_outside), format_count(links_.kernels)));
    const bool is_cpu_only = links_.device_work.empty() && links_.launches.empty();
    add("cpu-only", Severity::info, is_cpu_only ? counts_.ops : 0,
        "No launch and no device work: the trace is of the host alone.");
    add("no-ops", Severity::info, counts_.ops == 0 ? links_.kernels : 0,
        "No ops were recorded: kernels belong to none, and of the host only its calls are known.");
  }

  void links() {
    add("external-id-wrong", Severity::info, links_.external_id_disagrees,
        "External ids name other ops than those around the launch calls (profilers of 2022 to "
        "early 2024 wrote the correlation there). Device work is attributed by nesting instead.");
    const bool has_ids = recorder_of(trace_) != Recorder::xla;
    add("linked-by-external-id", Severity::warning, has_ids ? links_.linked_by_external_id : 0,
        "Device work without a correlation is attributed by its External id if it has one.");
  }

  void times() {
    add("kernels-without-time", Severity::warning, counts_.work_without_time,
        "Kernels with start and duration 0: their times were lost.");
    add("kernels-before-launch", Severity::warning, kernels_before_launch_,
        "Kernels that start before their launch call: the clocks of host and device disagree, so "
        "idle times and queue delays are off.");
    add("overlapping-kernels", Severity::info, overlapping_kernels(trace_, links_),
        "Kernels that start before their predecessor on the stream has ended: busy time is "
        "their union, which is less than their sum.");
    const bool is_far =
        !trace_.events.empty() && trace_.end_ns > counts_.last_end_ns &&
        static_cast<uint64_t>(trace_.end_ns) - static_cast<uint64_t>(counts_.last_end_ns) >
            static_cast<uint64_t>(kFarWindowEndNs);
    add("window-end-far", Severity::info, is_far ? 1 : 0,
        "The recorded window ends more than a day after the last event: not used.");
    add("steps-missing", Severity::warning, missing_steps(trace_, links_),
        "ProfilerStep numbers are missing between the first and the last.");
    add("no-steps", Severity::info, links_.steps.empty() ? counts_.ops : 0,
        trace_.selection ? "No ProfilerStep lies whole in this part of the trace: numbers per step "
                           "are unknown."
        : recorder_of(trace_) == Recorder::xla
            ? "No step (jax.profiler.StepTraceAnnotation): numbers per step are unknown."
            : "No ProfilerStep annotation: numbers per step are unknown.");
  }

  void recording() {
    const Recorder recorder = recorder_of(trace_);
    const bool is_nsight = recorder == Recorder::nsight;
    const auto derived =
        static_cast<int64_t>(metadata_number(trace_, "xla_derived_events").value_or(0));
    add("derived-events", Severity::info, derived,
        "Events that say again, by step, op or source, what other lanes of the XLA profiler say, "
        "or "
        "mark its own work: left out.");
    if (recorder == Recorder::xla) return xla_recording();
    add("no-shapes", Severity::info, counts_.ops_with_shapes == 0 ? counts_.ops : 0,
        std::string("Input shapes were not recorded (") +
            (is_nsight ? "torch.autograd.profiler.emit_nvtx(record_shapes=True)"
                       : "record_shapes") +
            "): FLOPs, bytes and GEMM sizes are unknown.");
    add("stacks-recorded", Severity::warning, counts_.python_frames,
        std::string(recorder_of(trace_) == Recorder::own ? "Call stacks and module ranges"
                                                         : "Python frames") +
            " were recorded: the host is slower than without the profiler" +
            (links_.device_work.empty() ? "." : ", and the device idles for longer."));
    const ProfilerCost& cost = profiler_;
    add("profiler-cost", cost.is_inflated ? Severity::warning : Severity::info,
        cost.total_ns > 0 ? counts_.ops : 0,
        fmt::format("The profiler itself took about {} on the host ({:.1f} us per op, {}).",
                    format_duration_ns(cost.total_ns), cost.ns_per_op * 1e-3,
                    cost.is_measured ? "measured" : "estimated"));
    add("profiler-overhead-events", Severity::info, counts_.overhead_events,
        fmt::format("The profiler recorded {} of its own work (buffer requests, lazy loading).",
                    format_duration_ns(counts_.overhead_ns)));
  }

  // XLA records neither shapes nor what its profiler costs.
  void xla_recording() {
    add("stacks-recorded", Severity::warning, counts_.python_frames,
        "Python frames were recorded: the host is slower than without the profiler.");
  }

  const Trace& trace_;
  const Links& links_;
  int64_t kernels_before_launch_;
  const ProfilerCost& profiler_;
  Counts counts_;
  std::vector<HealthItem> items_;
};

}  // namespace

void add_pauses(const Pauses& pauses, int64_t span_ns, std::vector<HealthItem>& items) {
  // Behind the warnings that are there.
  const auto at = std::ranges::find_if(
      items, [](const HealthItem& item) { return item.severity < Severity::warning; });
  items.insert(at,
               {"pauses", Severity::warning, pauses.count,
                fmt::format("The main thread was paused for {} of {}, in {}: another process "
                            "ran, or Python collected garbage. Not counted below.",
                            format_duration_ns(pauses.ns), format_duration_ns(span_ns + pauses.ns),
                            counted(pauses.count, "place", "places"))});
}

std::string_view severity_name(Severity severity) {
  return kSeverityNames[static_cast<size_t>(severity)];
}

std::vector<HealthItem> health(const Trace& trace, const Links& links) {
  return health(trace, links, launch_stats(trace, links).kernels_before_launch,
                profiler_cost(trace, links));
}

std::vector<HealthItem> health(const Trace& trace, const Links& links,
                               int64_t kernels_before_launch, const ProfilerCost& profiler) {
  return Examiner(trace, links, kernels_before_launch, profiler).examine();
}

}  // namespace epilogue::trace
