// SPDX-License-Identifier: Apache-2.0
// One profiled run of a workload: warm-up calls, schedule, files. Shared by profile and tour.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "epilogue/profiler.h"
#include "epilogue/trace/explain.h"
#include "epilogue/trace/memory.h"
#include "tools/epilogue/profile/workload.h"

namespace epilogue::tool {

struct ProfileRunOptions {
  profiler::ScheduleOptions schedule = {.wait = 1, .warmup = 1, .active = 3, .repeat = 1};
  bool record_shapes = false;
  bool profile_memory = false;
  bool with_flops = false;
  bool with_stack = false;
  bool group_by_input_shape = false;
  std::string sort_by = "cpu_time_total";
  int row_limit = 15;
  std::string out_dir = "traces";
  std::string tag;  // of the files; empty: the workload's
  // For the trace's top-level object: key, raw JSON.
  std::vector<std::pair<std::string, std::string>> metadata;
};

struct ProfileRun {
  std::string tag;
  std::string trace_file;
  std::string table_file;
  std::string table;  // as in table_file
  trace::KeyAverages averages;
  std::vector<trace::Quantity> quantities;
  std::vector<trace::DeviceMemory> memory;  // with profile_memory
  profiler::RecorderCost cost;
  double recorder_overhead_ns = 0;
  std::vector<std::string> warnings;
};

// Runs the workload, writes OUT/TAG.json.gz and OUT/TAG.txt. With several cycles (repeat) the files
// hold the last one. The warnings say where a trace of other settings was replaced. Throws Error
// when a file cannot be written or the schedule records nothing.
ProfileRun run_profile(const Workload& workload, const ProfileRunOptions& options);

// The value of a quantity; NaN where the trace does not give it.
double quantity(const ProfileRun& run, const std::string& name);

// "1 kernel", "5 kernels", "4.67 kernels": those of a step.
std::string kernels_per_step_text(const ProfileRun& run);

}  // namespace epilogue::tool
