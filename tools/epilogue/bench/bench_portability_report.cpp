// SPDX-License-Identifier: Apache-2.0
// What `epilogue bench portability` found, as a document.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "epilogue/runtime.h"
#include "tools/epilogue/bench/bench_portability.h"
#include "tools/epilogue/command.h"

namespace epilogue::tool {
namespace {

using bench::Disturbance;
using bench::PairTiming;
using trace::Document;
using trace::Grid;
using trace::Heading;
using trace::Paragraph;

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

}  // namespace

int64_t count_too_slow(const PortabilityRun& run) {
  int64_t count = 0;
  for (const PortabilityCell& c : run.cells)
    count += std::count_if(c.timings.begin(), c.timings.end(), is_too_slow);
  return count;
}

Document portability_document(const PortabilityRun& run, const PortabilityOptions& o) {
  Document document;
  document.push_back(Heading{"Portability: every plan beside eager"});
  document.push_back(Paragraph{run.machine});
  document.push_back(worst_grid(run, o));
  for (const Isa level : o.levels)
    for (const Disturbance d : o.disturbances) {
      document.push_back(
          Heading{fmt::format("{}, {}", isa_name(level), bench::disturbance_name(d))});
      document.push_back(cells_grid(run, level, d));
    }
  if (Grid grid = few_rows_grid(run); !grid.rows.empty()) {
    document.push_back(Heading{"Few rows, quiet: weights of 8 bits"});
    document.push_back(std::move(grid));
  }
  if (Grid grid = peers_grid(run); !grid.rows.empty()) {
    document.push_back(Heading{"Beside peers, quiet"});
    document.push_back(std::move(grid));
  }
  trace::Bullets skipped;
  for (const SkippedContender& s : run.skipped)
    skipped.items.push_back({s.name + ": " + s.reason, {}});
  if (!skipped.items.empty()) document.push_back(std::move(skipped));
  document.push_back(
      Paragraph{"Times are medians. Ratios: eager's time over this one's in interleaved pairs, the "
                "median and its 95 % interval; above 1 is faster than eager."});
  document.push_back(Paragraph{
      "of floor: what products and weights need at the peak and the bandwidth measured in "
      "this run, over the time at the minimum / at the median."});
  document.push_back(
      Paragraph{fmt::format("! marks an interval wholly below {}: {} of {} cells have one.",
                            kLeastRatio, count_too_slow(run), run.cells.size())});
  document.json = [&run] { return portability_json(run); };
  return document;
}

}  // namespace epilogue::tool
