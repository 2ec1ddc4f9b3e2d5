// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/profile/profile_run.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/progress.h"
#include "base/units.h"
#include "epilogue/trace/file.h"

namespace epilogue::tool {
namespace {

// Steps until the schedule is through; one cycle where it would go on for ever.
int64_t total_steps(const profiler::ScheduleOptions& s) {
  const int64_t cycles = s.repeat > 0 ? s.repeat : 1;
  const int64_t saved_wait = s.skip_first_wait != 0 ? s.wait : 0;
  return s.skip_first + cycles * (s.wait + s.warmup + s.active) - saved_wait;
}

// The workload, in the trace's top-level object.
constexpr const char* kSettingsKey = "epilogue_workload";
constexpr size_t kShownSettings = 200;

// The settings that an existing trace was recorded with.
std::string settings_in(const std::string& trace_file) {
  constexpr const char* kUnknown = "not known";
  const Result<trace::Trace> trace = trace::read_trace(trace_file);
  if (!trace) return kUnknown;
  for (const auto& [key, json] : trace.value().metadata)
    if (const auto text = parse_json(json); key == kSettingsKey && text.is_string())
      return text.get<std::string>();
  return kUnknown;
}

// With the files' names. A folder that cannot be written is said here, before anything runs.
ProfileRun begin_run(const Workload& workload, const ProfileRunOptions& o) {
  ProfileRun run;
  run.tag = o.tag.empty() ? workload.tag : o.tag;
  run.trace_file = o.out_dir + "/" + run.tag + ".json.gz";
  run.table_file = o.out_dir + "/" + run.tag + ".txt";
  if (auto probe = AtomicFile::create(run.trace_file); !probe)
    throw Error("[--out] " + probe.failure().message);
  if (!std::filesystem::exists(run.trace_file)) return run;
  if (const std::string before = settings_in(run.trace_file); before != workload.description)
    run.warnings.push_back(
        fmt::format("{} replaces the trace of other settings ({}); --tag or --out keeps both",
                    run.trace_file, printable(before, kShownSettings)));
  return run;
}

}  // namespace

ProfileRun run_profile(const Workload& workload, const ProfileRunOptions& o) {
  std::vector<trace::Row> no_rows;
  trace::sort_rows(no_rows, o.sort_by);  // an unknown key is said before anything runs
  const profiler::Schedule schedule = profiler::schedule(o.schedule);
  const int64_t steps = total_steps(o.schedule);
  ProfileRun result = begin_run(workload, o);
  ProgressBar progress("profiling " + result.tag, steps + workload.warmup_calls);
  for (int i = 0; i < workload.warmup_calls; ++i) {
    progress.update(i, "warm-up");
    workload.call();
  }

  std::optional<Failure> failure;
  profiler::ProfileOptions options;
  options.schedule = schedule;
  options.record_shapes = o.record_shapes || o.group_by_input_shape;
  options.profile_memory = o.profile_memory;
  options.with_flops = o.with_flops;
  options.with_stack = o.with_stack;
  options.on_trace_ready = [&](profiler::Profile& p) {
    if (auto s = p.export_chrome_trace(result.trace_file); !s) failure = s.failure();
    result.averages = p.key_averages(o.group_by_input_shape, o.with_stack ? 5 : 0);
    result.quantities = trace::quantities(p.trace());
    if (o.profile_memory) result.memory = trace::memory_profile(p.trace(), trace::link(p.trace()));
    result.recorder_overhead_ns = p.recorder_overhead_ns();
  };
  profiler::Profile prof(options);
  for (const auto& [key, json] : o.metadata) prof.add_metadata_json(key, json);
  prof.add_metadata_json(kSettingsKey, json_text(nlohmann::json(workload.description)));
  prof.start();
  for (int64_t i = 0; i < steps; ++i) {
    {
      const profiler::RecordFunction range(workload.label);
      workload.call();
    }
    progress.update(workload.warmup_calls + i + 1);
    prof.step();
  }
  prof.stop();
  progress.finish();
  if (failure) throw Error("[profile] " + failure->message);
  if (result.averages.rows.empty())
    throw Error("[profile] expected a schedule that records at least one step, got none");

  trace::TableOptions table = {.sort_by = o.sort_by, .row_limit = o.row_limit};
  result.table = trace::format_table(result.averages, table);
  if (auto s = write_file(result.table_file, result.table); !s)
    throw Error("[profile] " + s.failure().message);
  result.cost = prof.recorder_cost();
  result.warnings.insert(result.warnings.end(), prof.warnings().begin(), prof.warnings().end());
  return result;
}

double quantity(const ProfileRun& run, const std::string& name) {
  for (const trace::Quantity& q : run.quantities)
    if (q.name == name && q.value) return *q.value;
  return std::numeric_limits<double>::quiet_NaN();
}

std::string kernels_per_step_text(const ProfileRun& run) {
  const double kernels = quantity(run, "kernels_per_step");
  if (std::isnan(kernels) || kernels != std::floor(kernels))
    return fmt::format("{:g} kernels", kernels);
  return counted(static_cast<int64_t>(kernels), "kernel", "kernels");
}

}  // namespace epilogue::tool
