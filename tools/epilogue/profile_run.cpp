// SPDX-License-Identifier: Apache-2.0
#include "profile_run.h"

#include <limits>
#include <optional>

#include "base/file.h"
#include "base/progress.h"

namespace epilogue::tool {
namespace {

// Steps until the schedule is through; one cycle where it would go on for ever.
int64_t total_steps(const profiler::ScheduleOptions& s) {
  const int64_t cycles = s.repeat > 0 ? s.repeat : 1;
  const int64_t saved_wait = s.skip_first_wait != 0 ? s.wait : 0;
  return s.skip_first + cycles * (s.wait + s.warmup + s.active) - saved_wait;
}

}  // namespace

ProfileRun run_profile(const Workload& workload, const ProfileRunOptions& o) {
  const profiler::Schedule schedule = profiler::schedule(o.schedule);
  const int64_t steps = total_steps(o.schedule);
  ProgressBar progress("profiling " + workload.tag, steps + workload.warmup_calls);
  for (int i = 0; i < workload.warmup_calls; ++i) {
    progress.update(i, "warm-up");
    workload.call();
  }

  ProfileRun result;
  const std::string base = o.out_dir + "/" + workload.tag;
  result.trace_file = base + ".json.gz";
  result.table_file = base + ".txt";
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

  trace::TableOptions table;
  table.sort_by = o.sort_by;
  table.row_limit = o.row_limit;
  result.table = trace::format_table(result.averages, table);
  if (auto s = write_file(result.table_file, result.table); !s)
    throw Error("[profile] " + s.failure().message);
  result.cost = prof.recorder_cost();
  result.warnings = prof.warnings();
  return result;
}

double quantity(const ProfileRun& run, const std::string& name) {
  for (const trace::Quantity& q : run.quantities)
    if (q.name == name && q.value) return *q.value;
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace epilogue::tool
