// SPDX-License-Identifier: Apache-2.0
// The difference of two traces: where that in wall time comes from, part by part.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "epilogue/trace/links.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

// One reason for a difference. The deltas of all parts add up to the difference in wall time.
struct DiffPart {
  std::string what;  // "aten::mm: other kernels", "device idle: host in ops"; no two are the same
  std::string why;   // "tile 128x128 -> 128x256; 6 -> 3 launches"
  int64_t before_ns = 0;
  int64_t after_ns = 0;
  // Parts about kernels only: how often they ran, and the bytes that they moved; -1 if a
  // trace does not say.
  std::array<double, 2> kernels = {};
  std::array<int64_t, 2> bytes = {-1, -1};
  std::array<std::vector<std::string>, 2> kernel_names = {};  // in full, the longest first
  int64_t delta_ns() const { return after_ns - before_ns; }
};

// One kernel (identified by its name), or one op, in both traces; counts of 0 if it does not
// occur.
struct KernelChange {
  std::string name;
  std::string label;  // a short name that no other change has
  std::array<double, 2> count = {};
  std::array<int64_t, 2> total_ns = {};  // of ops: less the ops below them
};

struct TraceDiff {
  // Wall time is that of the steps, which both traces have; else the span.
  bool by_steps = false;
  // The traces have different numbers of steps: all times, counts and bytes here are of an average
  // step. Else they are sums over the steps, or over the span.
  bool per_step = false;
  bool has_device_work = false;        // in either trace; else parts are about ops
  std::array<std::string, 2> devices;  // names of the busiest; "" unknown
  std::array<int64_t, 2> steps = {};
  std::array<int64_t, 2> wall_ns = {};
  std::array<int64_t, 2> busy_ns = {};  // of the busiest device, within the wall time
  std::array<double, 2> kernels = {};   // as launches and ops: within the wall time
  std::array<double, 2> launches = {};
  std::array<double, 2> ops = {};
  // Of the work of replayed graphs, how much has the op that captured it; empty: no graph was
  // replayed, or DiffOptions::captured was not given.
  std::array<std::optional<double>, 2> captured_pct = {};
  // The largest change first, whatever its sign; what takes as long as before is left out.
  std::vector<DiffPart> parts;
  int64_t unexplained_ns = 0;  // of the parts: idle time without a cause in either trace
  std::vector<KernelChange> kernels_added;  // by time, the longest first
  std::vector<KernelChange> kernels_removed;
  std::vector<KernelChange> kernels_changed;  // another count, or another mean by over 5 %
  // The same of the ops of the main thread, if neither trace has device work.
  std::vector<KernelChange> ops_added;
  std::vector<KernelChange> ops_removed;
  std::vector<KernelChange> ops_changed;
};

struct DiffOptions {
  // Changes below this share of the larger wall time are merged into one part per direction.
  double min_part_pct = 0.5;
  // Ops of replayed graphs, of both traces (captured_ops()); null: kernels of graphs have none, and
  // are compared by their names. Must outlive the call.
  std::array<const CapturedOps*, 2> captured = {};
};

TraceDiff diff_traces(const Trace& before, const Links& before_links, const Trace& after,
                      const Links& after_links, const DiffOptions& options = {});

// --- Regressions --------------------------------------------------------------------------------
// Whether the steps of one version take longer than those of another, beyond noise.

// Times of all steps of some traces of one version.
struct StepTimes {
  int64_t traces = 0;
  std::vector<int64_t> wall_ns;
  std::vector<int64_t> in_ops_ns;  // at least one thread was in an op
  std::vector<int64_t> device_ns;  // union of the device work that the step launched

  void add(const Trace& trace, const Links& links);
};

// One quantity of the steps, by the test of Mann and Whitney.
struct StepChange {
  std::string name;       // "wall_us_per_step"
  std::string doc;        // "wall time"
  int64_t before_ns = 0;  // medians
  int64_t after_ns = 0;
  double shift_ns = 0;       // the median of all differences of a later and an earlier step
  double shift_pct = 0;      // of before_ns
  double superiority = 0.5;  // how often a later step takes longer than an earlier one
  double p = 1;              // of a shift in this direction by chance, one-sided
  bool is_exact = false;     // p: of the ranks' own distribution, else of the normal one
  bool is_slower = false;
  bool is_faster = false;
  bool is_within_tolerance = false;  // there is a shift, and it is too small to matter
};

struct StepComparisonOptions {
  double alpha = 0.01;       // how often no change may look like one, over all quantities
  double tolerance_pct = 2;  // smaller shifts do not count
};

struct StepComparison {
  int64_t before_traces = 0;
  int64_t after_traces = 0;
  int64_t before_steps = 0;
  int64_t after_steps = 0;
  std::vector<StepChange> quantities;  // that both measured
  double p_needed = 0;                 // of one quantity: alpha over their number (Bonferroni)
  double smallest_p = 1;               // that so many steps can give
  bool can_decide = false;             // false: too few steps, whatever their times are
  bool has_regression = false;
};

StepComparison compare_steps(const StepTimes& before, const StepTimes& after,
                             const StepComparisonOptions& options = {});

}  // namespace epilogue::trace

#pragma GCC visibility pop
