// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/bench/crossover.h"

#include <fmt/format.h>

#include <cmath>

#include "base/units.h"
#include "tools/epilogue/bench/svg_plot.h"
#include "tools/epilogue/profile/profile_run.h"

namespace epilogue::tool {
namespace {

// Enough steps that a microsecond is measured over many, few enough that 4096 takes seconds.
int64_t steps_for(int64_t size) {
  if (size <= 256) return 200;
  return size <= 1024 ? 20 : 3;
}

}  // namespace

std::vector<double> crossings_of(const std::vector<CrossoverRow>& rows) {
  std::vector<double> list;
  for (size_t i = 1; i < rows.size(); ++i) {
    const double before = std::log(rows[i - 1].kernel_us / rows[i - 1].dispatch_us);
    const double after = std::log(rows[i].kernel_us / rows[i].dispatch_us);
    if ((before < 0) == (after < 0)) continue;
    const double share = before / (before - after);
    list.push_back(std::exp2(std::log2(static_cast<double>(rows[i - 1].size)) * (1 - share) +
                             std::log2(static_cast<double>(rows[i].size)) * share));
  }
  return list;
}

std::string crossover_sentence(const Crossover& c) {
  const bool kernels_first =
      !c.rows.empty() && c.rows.front().kernel_us >= c.rows.front().dispatch_us;
  if (c.crossings.empty())
    return fmt::format("{} at every size measured here.", kernels_first
                                                              ? "The kernels take most of a step"
                                                              : "Overhead takes most of a step");
  if (c.crossings.size() == 1)
    return fmt::format("Below n = {:.0f} a step is {}, above it {}.", c.crossings[0],
                       kernels_first ? "compute-bound" : "overhead-bound",
                       kernels_first ? "overhead-bound" : "compute-bound");
  std::string places;
  for (size_t i = 0; i < c.crossings.size(); ++i)
    places += fmt::format("{}{:.0f}",
                          i == 0                        ? ""
                          : i + 1 == c.crossings.size() ? " and "
                                                        : ", ",
                          c.crossings[i]);
  const bool kernels_last = c.rows.back().kernel_us >= c.rows.back().dispatch_us;
  return fmt::format(
      "Dispatch and kernels take equal time {} times in this run, at n = {}. Between the first and "
      "the last of these sizes neither is clearly larger; above n = {:.0f} {}.",
      c.crossings.size(), places, c.crossings.back(),
      kernels_last ? "a step is compute-bound" : "a step is overhead-bound");
}

Crossover measure_crossover(const WorkloadOptions& base, const std::vector<int64_t>& sizes,
                            const std::string& out_dir,
                            const std::function<void(int64_t size)>& progress) {
  Crossover result;
  for (const int64_t size : sizes) {
    progress(size);
    WorkloadOptions o = base;
    o.kind = "matmul-add";
    o.size = size;
    o.input = "random";
    const Workload workload = make_workload(o);
    ProfileRunOptions run;
    run.schedule.active = steps_for(size);
    run.out_dir = out_dir;
    const ProfileRun profile = run_profile(workload, run);
    const auto steps = static_cast<double>(run.schedule.active);
    CrossoverRow row = {.size = size, .kernel_us = quantity(profile, "kernel_us_per_step")};
    row.dispatch_us = std::max(
        quantity(profile, "host_us_per_step") - profile.recorder_overhead_ns * 1e-3 / steps, 1e-3);
    const auto n = static_cast<double>(size);
    row.gflops = 2 * n * n * n / (row.kernel_us * 1e3);
    result.rows.push_back(row);
  }
  result.crossings = crossings_of(result.rows);
  return result;
}

std::string crossover_table(const Crossover& crossover) {
  std::string text = fmt::format("{:>6}  {:>12}  {:>12}  {:>9}  {:>9}  {}\n", "n", "dispatch",
                                 "kernels", "kernels %", "GFLOP/s", "bound by");
  for (const CrossoverRow& r : crossover.rows) {
    const double share = r.kernel_us / (r.kernel_us + r.dispatch_us);
    text +=
        fmt::format("{:>6}  {:>12}  {:>12}  {:>8.1f}%  {:>9.1f}  {}\n", r.size,
                    format_duration_ns(r.dispatch_us * 1e3), format_duration_ns(r.kernel_us * 1e3),
                    share * 100, r.gflops, share < 0.5 ? "overhead" : "the kernels");
  }
  return text;
}

std::string crossover_svg(const Crossover& crossover, const std::string& dtype) {
  Plot plot;
  plot.title = "matmul-add, " + dtype + ": from overhead-bound to compute-bound";
  plot.x_label = "n of the n x n matrices";
  plot.y_label = "time per step, microseconds";
  Series dispatch{"dispatch", "#d95f02", {}};
  Series kernels{"kernels", "#1b6ca8", {}};
  for (const CrossoverRow& r : crossover.rows) {
    dispatch.points.emplace_back(static_cast<double>(r.size), r.dispatch_us);
    kernels.points.emplace_back(static_cast<double>(r.size), r.kernel_us);
  }
  plot.series = {dispatch, kernels};
  if (const std::optional<double> size = crossover.size()) {
    plot.mark_x = size;
    plot.mark_label = fmt::format("equal at n = {:.0f}", *size);
  }
  return render_svg(plot);
}

}  // namespace epilogue::tool
