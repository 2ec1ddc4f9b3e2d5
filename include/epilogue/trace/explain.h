// SPDX-License-Identifier: Apache-2.0
// What a trace means: all analyses of it, and the findings drawn from them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "epilogue/trace/collectives.h"
#include "epilogue/trace/compile_regions.h"
#include "epilogue/trace/dispatch_chains.h"
#include "epilogue/trace/fused_kernels.h"
#include "epilogue/trace/fusion.h"
#include "epilogue/trace/gemms.h"
#include "epilogue/trace/health.h"
#include "epilogue/trace/hot_spots.h"
#include "epilogue/trace/idle.h"
#include "epilogue/trace/launches.h"
#include "epilogue/trace/links.h"
#include "epilogue/trace/memory_profile.h"
#include "epilogue/trace/modules.h"
#include "epilogue/trace/occupancy.h"
#include "epilogue/trace/timeline.h"
#include "epilogue/trace/verdict.h"

namespace epilogue::trace {

// One thing worth knowing, with what it rests on.
struct Finding {
  std::string id;  // stable, for scripts: "fusion", "tf32-off"
  Severity severity = Severity::kInfo;
  std::string title;                  // one line
  std::vector<std::string> evidence;  // sentences with numbers
  // Estimated time that acting on it would save over the whole trace; empty where it is no advice
  // or nothing can be said. Savings of several findings may be the same time.
  std::optional<double> saving_us;
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
  std::vector<Region> steps;  // empty where the trace has no ProfilerStep
  std::vector<DeviceIdle> idle;
  LaunchStats launches;
  std::vector<HealthItem> health;
  GemmReport gemms;
  FusionFindings fusions;
  std::vector<FusedKernel> fused;  // what was fused already
  DispatchChains chains;
  HotSpots hot_spots;
  std::vector<DeviceMemory> memory;
  CompileSummary compile;
  std::vector<KernelOccupancy> occupancies;
  std::vector<ModuleTime> modules;
  RankCollectives collectives;    // of this rank alone
  std::vector<Finding> findings;  // the verdict first, then by severity and saving
};

Explanation explain(const Trace& trace, const Links& links);

}  // namespace epilogue::trace
