// SPDX-License-Identifier: Apache-2.0
// The limit of a run: for the whole trace and for each step or region.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"
#include "epilogue/trace/timeline.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

enum class Bound : uint8_t {
  overhead,    // the device idles while the host is in ops or Python
  launch,      // it idles while the host is inside launch calls, or less in the queue
  memory,      // it works, mostly on what moves bytes
  compute,     // it works, mostly on matrix products, convolutions, attention
  sync,        // it idles while the host waits for it, or waits for other ranks
  data,        // it idles while the host is in the data loader
  cpu_only,    // nothing was started on a device
  no_kernels,  // work was started, but the trace has no kernels
  unknown,     // it idles mostly while the trace says nothing of the host
  queue,       // it idles mostly between work that was launched and had not started
};
// "overhead-bound", "cpu-only". kUnknown is called overhead-bound too, by the device's idleness;
// its evidence says that the cause is unknown.
std::string_view bound_name(Bound bound);

// The parts into which the wall time of a device divides.
enum class TimePart : uint8_t {
  compute,
  memory,
  communication,
  overhead,  // idle, host in ops or between them, less the profiler's part
  profiler,  // idle, and the host would not have been so slow without the profiler: estimated
  launch,
  queue,
  sync,
  data,
  other,
};
inline constexpr int kTimeParts = static_cast<int>(TimePart::other) + 1;
std::string_view time_part_name(TimePart part);  // "compute", "overhead"

// A device that works at least this share of the wall time is what limits the run; below it the
// largest cause of idleness is. The profiler's part of the wall time is taken out; collectives that
// no other kernel hides are waiting, not work; waits in which work that was not recorded may have
// run are taken out. See Verdict::judged_pct.
inline constexpr double kDeviceBoundPct = 50;
// The least share of compute in the device's work for "compute-bound".
inline constexpr double kComputeBoundPct = 50;

// Time the profiler adds to each op on the host. An estimate of 4 us was measured for traces with
// shapes, stacks or memory (pytorch/pytorch#82793: 17.8 ms unprofiled, 30.5 ms profiled).
inline constexpr double kProfilerNsPerOp = 4000;
// If none of these was recorded: our estimate, for two clock reads and one record.
inline constexpr double kPlainProfilerNsPerOp = 1000;
// The same of PyTorch 2.4 and later, whose traces have a base time: measured with PyTorch 2.15 on a
// Xeon of 2024 over views and small ops, without the profiler and with it.
inline constexpr double kRecentProfilerNsPerOp = 600;
inline constexpr double kRecentPlainProfilerNsPerOp = 350;

struct ProfilerCost {
  double ns_per_op = kPlainProfilerNsPerOp;
  bool is_measured = false;  // by the recorder itself: our own traces say so in their metadata
  bool is_inflated = false;  // shapes, stacks or memory were recorded
  int64_t total_ns = 0;      // over all ops, never more than an op's own time
};

struct Verdict {
  Bound bound = Bound::cpu_only;
  // Percent of the wall time, by TimePart; they add up to 100. Empty if no device time is known
  // (cpu-only, no-kernels, a region without length).
  std::vector<double> part_pct;
  // Compared with kDeviceBoundPct: compute and memory work over the wall time less the profiler's
  // part and less unsure waits, in percent. Empty if part_pct is.
  std::optional<double> judged_pct;
  std::vector<std::string> evidence;  // sentences

  double pct(TimePart part) const {
    return part_pct.empty() ? 0 : part_pct[static_cast<size_t>(part)];
  }
};

struct RegionVerdict {
  Region region;
  Verdict verdict;
};

struct Verdicts {
  Verdict whole;
  std::vector<RegionVerdict> regions;  // as regions()
  ProfilerCost profiler;
};

// Judges by the device that worked most.
Verdicts judge_time(const Trace& trace, const Links& links);

ProfilerCost profiler_cost(const Trace& trace, const Links& links);

}  // namespace epilogue::trace

#pragma GCC visibility pop
