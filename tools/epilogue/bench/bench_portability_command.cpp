// SPDX-License-Identifier: Apache-2.0
// epilogue bench portability: the guard of every plan's speed.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/progress.h"
#include "base/units.h"
#include "epilogue/runtime.h"
#include "report/document.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/bench/bench_portability.h"
#include "tools/epilogue/bench/bench_report.h"
#include "tools/epilogue/profile/machine.h"

namespace epilogue::tool {
namespace {

using bench::Disturbance;
using bench::PairTiming;
using trace::Document;
using trace::Grid;
using trace::Heading;
using trace::Paragraph;

struct BenchPortabilityFlags {
  PortabilityOptions run;
  std::vector<std::string> levels;
  std::vector<std::string> dtypes = {"f32", "bf16"};
  bool is_quiet_only = false;
  int threads = 0;
  Format format = Format::text;
};

const PairTiming* find(const PortabilityCell& cell, const std::string& name) {
  const auto at = std::ranges::find(cell.timings, name, &PairTiming::name);
  return at == cell.timings.end() ? nullptr : &*at;
}

std::string ratio_text(const PairTiming* t) {
  if (t == nullptr) return "-";
  return fmt::format("{:.2f} [{:.2f}, {:.2f}]{}", t->ratio.value, t->ratio.low, t->ratio.high,
                     is_too_slow(*t) ? " !" : "");
}

// Share of the roofline, at the minimum and at the median.
std::string share_text(const PortabilityCell& cell, const PairTiming* t) {
  if (t == nullptr) return "-";
  return fmt::format("{:.0f} / {:.0f} %", cell.floor_ns / t->min_ns * 100,
                     cell.floor_ns / t->median_ns * 100);
}

std::string time_text(const PairTiming* t) {
  return t == nullptr ? "-" : format_duration_ns(t->median_ns);
}

Grid cells_grid(const PortabilityRun& run, Isa level, Disturbance disturbance) {
  Grid grid{{{"shape", true},
             {"dtype", true},
             {"eager"},
             {"compile"},
             {"of floor"},
             {"vs eager"},
             {"fused vs eager"}},
            {},
            ""};
  for (const PortabilityCell& c : run.cells) {
    if (c.level != level || c.disturbance != disturbance) continue;
    const PairTiming* const compiled = find(c, "epilogue.compile");
    grid.rows.push_back({shape_name(c.shape), std::string(dtype_name(c.dtype)),
                         time_text(find(c, "epilogue.eager")), time_text(compiled),
                         share_text(c, compiled), ratio_text(compiled),
                         ratio_text(find(c, "epilogue.fused"))});
  }
  return grid;
}

// compile beside peers: their time over its.
Grid peers_grid(const PortabilityRun& run) {
  constexpr const char* kPeers[] = {"onednn", "pytorch.eager", "pytorch.compile"};
  Grid grid{{{"shape", true}, {"dtype", true}, {"compile"}}, {}, ""};
  for (const char* peer : kPeers) {
    grid.columns.push_back({peer});
    grid.columns.push_back({"over compile"});
  }
  for (const PortabilityCell& c : run.cells) {
    const PairTiming* const ours = find(c, "epilogue.compile");
    const bool has_peer =
        std::ranges::any_of(kPeers, [&](const char* name) { return find(c, name) != nullptr; });
    if (!has_peer || ours == nullptr) continue;
    std::vector<std::string> row = {shape_name(c.shape), std::string(dtype_name(c.dtype)),
                                    time_text(ours)};
    for (const char* name : kPeers) {
      const PairTiming* const peer = find(c, name);
      row.push_back(time_text(peer));
      row.push_back(peer == nullptr ? "-"
                                    : fmt::format("{:.2f}x", peer->median_ns / ours->median_ns));
    }
    grid.rows.push_back(std::move(row));
  }
  return grid;
}

Grid few_rows_grid(const PortabilityRun& run) {
  Grid grid{{{"shape", true},
             {"level", true},
             {"dtype", true},
             {"compile"},
             {"of floor"},
             {"int8"},
             {"over compile"}},
            {},
            ""};
  for (const PortabilityCell& c : run.cells) {
    const PairTiming* const int8 = find(c, "epilogue.int8");
    const PairTiming* const compiled = find(c, "epilogue.compile");
    if (int8 == nullptr || compiled == nullptr || c.disturbance != Disturbance::quiet) continue;
    grid.rows.push_back({shape_name(c.shape), std::string(isa_name(c.level)),
                         std::string(dtype_name(c.dtype)), time_text(compiled),
                         share_text(c, compiled), time_text(int8),
                         fmt::format("{:.2f}x", compiled->median_ns / int8->median_ns)});
  }
  return grid;
}

struct Worst {
  const PortabilityCell* cell = nullptr;
  const PairTiming* timing = nullptr;
};

// The least ratio of a contender over cells of a kind.
template <class Matches>
Worst worst_of(const PortabilityRun& run, const std::string& name, Matches&& matches) {
  Worst worst;
  for (const PortabilityCell& c : run.cells) {
    const PairTiming* const t = find(c, name);
    if (t == nullptr || !matches(c)) continue;
    if (worst.timing == nullptr || t->ratio.value < worst.timing->ratio.value) worst = {&c, t};
  }
  return worst;
}

struct Row {
  const char* label;
  const char* contender;
  bool is_step;
};
constexpr Row kWorstRows[] = {{"compile", "epilogue.compile", false},
                              {"fused: the row chain itself", "epilogue.fused", false},
                              {"compiled training step", "epilogue.compile", true}};

Grid worst_grid(const PortabilityRun& run, const PortabilityOptions& o) {
  Grid grid{{{"worst ratio to eager", true}, {"", true}, {"ratio"}, {"of", true}}, {}, ""};
  for (const Row& row : kWorstRows)
    for (const Disturbance d : o.disturbances) {
      const Worst worst = worst_of(run, row.contender, [&](const PortabilityCell& c) {
        return c.disturbance == d && (c.shape.kind == PortabilityShape::Kind::step) == row.is_step;
      });
      if (worst.timing == nullptr) continue;
      grid.rows.push_back(
          {row.label, std::string(bench::disturbance_name(d)), ratio_text(worst.timing),
           fmt::format("{} {} {}", shape_name(worst.cell->shape), dtype_name(worst.cell->dtype),
                       isa_name(worst.cell->level))});
    }
  return grid;
}

int64_t count_too_slow(const PortabilityRun& run) {
  int64_t count = 0;
  for (const PortabilityCell& c : run.cells)
    count += std::count_if(c.timings.begin(), c.timings.end(), is_too_slow);
  return count;
}

std::string text_of_sizes(const PortabilityRun& run, const PortabilityOptions& o, Format format) {
  Document document;
  document.push_back(Heading{"Portability: every plan beside eager"});
  document.push_back(Paragraph{run.machine});
  document.emplace_back(worst_grid(run, o));
  for (const Isa level : o.levels)
    for (const Disturbance d : o.disturbances) {
      document.push_back(
          Heading{fmt::format("{}, {}", isa_name(level), bench::disturbance_name(d))});
      document.emplace_back(cells_grid(run, level, d));
    }
  if (Grid grid = few_rows_grid(run); !grid.rows.empty()) {
    document.push_back(Heading{"Few rows, quiet: weights of 8 bits"});
    document.emplace_back(std::move(grid));
  }
  if (Grid grid = peers_grid(run); !grid.rows.empty()) {
    document.push_back(Heading{"Beside peers, quiet"});
    document.emplace_back(std::move(grid));
  }
  trace::Bullets skipped;
  for (const SkippedContender& s : run.skipped)
    skipped.items.push_back({s.name + ": " + s.reason, {}});
  if (!skipped.items.empty()) document.emplace_back(std::move(skipped));
  document.push_back(
      Paragraph{"Times are medians. Ratios: eager's time over this one's in interleaved pairs, the "
                "median and its 95 % interval; above 1 is faster than eager."});
  document.push_back(Paragraph{
      "of floor: what products and weights need at the peak and the bandwidth measured in "
      "this run, over the time at the minimum / at the median."});
  document.push_back(
      Paragraph{fmt::format("! marks an interval wholly below {}: {} of {} cells have one.",
                            kLeastRatio, count_too_slow(run), run.cells.size())});
  return format == Format::markdown ? trace::document_markdown(document)
                                    : trace::document_text(document, wants_bold());
}

nlohmann::json timing_json(const PortabilityCell& cell, const PairTiming& t) {
  return {{"name", t.name},
          {"min_us", t.min_ns * 1e-3},
          {"median_us", t.median_ns * 1e-3},
          {"rounds", t.rounds},
          {"ratio_to_eager", t.ratio.value},
          {"ratio_low", t.ratio.low},
          {"ratio_high", t.ratio.high},
          {"of_floor_pct", cell.floor_ns / t.median_ns * 100},
          {"too_slow", is_too_slow(t)}};
}

std::vector<Isa> levels_of(const std::vector<std::string>& names) {
  std::vector<Isa> levels;
  for (const std::string& name : names) {
    const Isa level = parse_isa(name).value();
    if (!is_available(level))
      throw Error(fmt::format("[--levels] expected levels up to {}, this machine's, got {}",
                              isa_name(detected_isa()), name));
    levels.push_back(level);
  }
  if (names.empty())
    for (const Isa level : available_isas())
      if (level != Isa::baseline) levels.push_back(level);
  if (levels.empty()) levels.push_back(Isa::baseline);
  return levels;
}

int run_bench_portability_command(BenchPortabilityFlags o) {
  if (o.threads != 0) set_num_threads(o.threads);
  o.run.levels = levels_of(o.levels);
  for (const std::string& name : o.dtypes) o.run.dtypes.push_back(parse_dtype(name));
  o.run.disturbances.assign(std::begin(bench::kDisturbances), std::end(bench::kDisturbances));
  if (o.is_quiet_only) o.run.disturbances.resize(1);
  constexpr int64_t kSteps = 1000;
  ProgressBar bar("bench portability", kSteps);
  const PortabilityRun run =
      run_portability(o.run, [&](int64_t done, int64_t all, const std::string& what) {
        bar.update(done * kSteps / all, what);
      });
  bar.finish();
  for (const std::string& line : run.disagreements)
    fmt::print(stderr, "epilogue: results differ: {}\n", line);
  print(o.format == Format::json ? portability_json(run) : text_of_sizes(run, o.run, o.format));
  return run.disagreements.empty() && count_too_slow(run) == 0 ? kExitFine : kExitNo;
}

}  // namespace

std::string portability_json(const PortabilityRun& run) {
  auto cells = nlohmann::json::array();
  for (const PortabilityCell& c : run.cells) {
    auto rows = nlohmann::json::array();
    for (const PairTiming& t : c.timings) rows.push_back(timing_json(c, t));
    cells.push_back({{"shape", shape_name(c.shape)},
                     {"dtype", dtype_name(c.dtype)},
                     {"isa", isa_name(c.level)},
                     {"disturbance", bench::disturbance_name(c.disturbance)},
                     {"floor_us", c.floor_ns * 1e-3},
                     {"rows", std::move(rows)}});
  }
  auto skipped = nlohmann::json::array();
  for (const SkippedContender& s : run.skipped)
    skipped.push_back({{"name", s.name}, {"reason", s.reason}});
  const nlohmann::json out = {
      {"schema_version", kSchemaVersion}, {"machine", run.machine},
      {"threads", num_threads()},         {"too_slow", count_too_slow(run)},
      {"least_ratio", kLeastRatio},       {"cells", std::move(cells)},
      {"skipped", std::move(skipped)},    {"disagreements", run.disagreements}};
  return out.dump(2) + "\n";
}

void add_bench_portability(CLI::App& bench_app, Body& run) {
  auto options = std::make_shared<BenchPortabilityFlags>();
  CLI::App* app = bench_app.add_subcommand(
      "portability", "Checks that no plan is slower than eager, on every instruction set");
  app->add_option("--levels", options->levels, "instruction-set levels, e.g. avx2 avx512")
      ->option_text("LEVEL ... [all above baseline]");
  app->add_option("--dtypes", options->dtypes, "f32, bf16, f16")
      ->transform(dtype_value())
      ->option_text("DTYPE ... [f32 bf16]");
  app->add_flag("--quiet-only", options->is_quiet_only,
                "leave out the runs beside other processes");
  app->add_flag("--quick", options->run.quick, "only small shapes");
  app->add_flag("--large", options->run.large,
                "8192x768x3072 and 512x4096x14336 too: half an hour");
  app->add_option("--seconds", options->run.seconds,
                  "seconds of timing per cell; slow shapes take longer")
      ->check(number_above(0))
      ->option_text("S [1]");
  app->add_option("--rounds", options->run.rounds, "least number of pairs per cell")
      ->check(whole_number(3))
      ->option_text("N [7]");
  app->add_option("--torch", options->run.torch,
                  "a Python that has PyTorch; or set EPILOGUE_PYTHON")
      ->option_text("PYTHON");
  add_threads(*app, options->threads);
  add_format(*app, options->format);
  app->footer(
      "Compares eager with compile, with fused (the row chain itself) and, for few rows, with\n"
      "8-bit weights, on GeGLU MLPs, a linear layer and training steps. Each runs alone, beside a\n"
      "process that streams memory, and beside one that keeps the last processor busy. oneDNN and\n"
      "PyTorch run alone only. Exit 1 if results do not agree, or if the interval of a plan lies\n"
      "wholly below 0.97 of eager's speed.\n"
      "Example: epilogue bench portability --quick --levels avx2");
  app->callback(
      [options, &run] { run = [options] { return run_bench_portability_command(*options); }; });
}

}  // namespace epilogue::tool
