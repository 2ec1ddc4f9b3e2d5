// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/bench/bench_ladder_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/units.h"

namespace epilogue::tool {

namespace {

trace::Grid grid_of(const LadderRun& run, const Ladder& ladder) {
  trace::Grid grid{
      {{"", true}, {"min"}, {"MAD"}, {"GFLOP/s"}, {"of peak"}, {"step"}, {"error"}}, {}, ""};
  for (const LadderRung& r : ladder.rungs)
    grid.rows.push_back({r.timing.name, format_duration_ns(r.timing.min_ns),
                         format_duration_ns(r.timing.mad_ns), fmt::format("{:.1f}", r.gflops),
                         fmt::format("{:.1f} %", r.gflops / run.machine.peak_gflops.value() * 100),
                         fmt::format("{:.2f}x", r.factor), fmt::format("{:.1e}", r.rel_l2_error)});
  return grid;
}

trace::Bullets sentences_of(const Ladder& ladder) {
  trace::Bullets list;
  for (const LadderRung& r : ladder.rungs)
    list.items.push_back({r.timing.name + ": " + r.removes, {}});
  return list;
}

std::string ladder_json(const LadderRun& run) {
  nlohmann::json out = machine_json(run.machine, run.dtype);
  out["workload"] = "ladder";
  auto& ladders = out["ladders"] = nlohmann::json::array();
  for (const Ladder& ladder : run.ladders) {
    auto rows = nlohmann::json::array();
    for (const LadderRung& r : ladder.rungs)
      rows.push_back({{"name", r.timing.name},
                      {"min_us", r.timing.min_ns * 1e-3},
                      {"median_us", r.timing.median_ns * 1e-3},
                      {"mad_us", r.timing.mad_ns * 1e-3},
                      {"gflops", r.gflops},
                      {"peak_pct", r.gflops / run.machine.peak_gflops.value() * 100},
                      {"factor", r.factor},
                      {"rel_l2_error", r.rel_l2_error},
                      {"removes", r.removes}});
    ladders.push_back({{"name", ladder.name}, {"shape", ladder.shape}, {"rows", rows}});
  }
  return out.dump(2) + "\n";
}

}  // namespace

trace::Document ladder_document(const LadderRun& run) {
  trace::Document document;
  for (const Ladder& ladder : run.ladders) {
    document.push_back(trace::Heading{fmt::format("{} {}, {}: what each step buys", ladder.name,
                                                  fmt::join(ladder.shape, " x "), run.dtype)});
    document.push_back(grid_of(run, ladder));
  }
  // The MLP's ladder has all steps of the product's.
  document.push_back(sentences_of(run.ladders.back()));
  document.push_back(trace::Paragraph{machine_text(run.machine, run.dtype)});
  document.json = [&run] { return ladder_json(run); };
  return document;
}

}  // namespace epilogue::tool
