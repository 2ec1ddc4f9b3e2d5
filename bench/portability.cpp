// SPDX-License-Identifier: Apache-2.0
// Is a plan ever slower than what it replaces? Each mode beside eager, on every instruction-set
// level of the machine, in quiet and beside processes that disturb.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/units.h"
#include "bench/agreement.h"
#include "bench/disturbance.h"
#include "bench/pairs.h"
#include "epilogue/autograd.h"
#include "epilogue/fused.h"
#include "epilogue/ops.h"
#include "epilogue/runtime.h"
#include "explain/render/document.h"
#include "measure/measure.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/bench/bench_contenders.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/profile/machine.h"

namespace epilogue::tool {
namespace {

struct PortabilityOptions {
  std::vector<Isa> levels;
  std::vector<DType> dtypes;
  std::vector<bench::Disturbance> disturbances;
  bool quick = false;  // shapes of less than a hundred MFLOP alone
  bool large = false;  // 8192x768x3072 and 512x4096x14336 too
  double seconds = 1;  // per cell
  int rounds = 7;      // at least, per cell
  std::string torch;   // a Python with PyTorch; empty: none
};

struct PortabilityShape {
  enum class Kind { linear, mlp, step };
  Kind kind = Kind::mlp;
  int64_t rows = 0;
  int64_t width = 0;
  int64_t hidden = 0;  // of linear: columns of the result
};
// "mlp 256x768x3072": rows, width, hidden width.
std::string shape_name(const PortabilityShape& s) {
  constexpr const char* names[] = {"linear", "mlp", "step"};
  return fmt::format("{} {}x{}x{}", names[static_cast<size_t>(s.kind)], s.rows, s.width, s.hidden);
}

// One shape, dtype, level and disturbance.
struct PortabilityCell {
  PortabilityShape shape;
  DType dtype = DType::f32;
  Isa level = Isa::baseline;
  bench::Disturbance disturbance = bench::Disturbance::quiet;
  std::vector<bench::PairTiming> timings;  // eager first
  // The least time of the products and their weights, by the peak and the bandwidth measured in
  // this run: the roofline.
  double floor_ns = 0;
};

struct PortabilityRun {
  std::string machine;
  std::vector<PortabilityCell> cells;
  std::vector<SkippedContender> skipped;   // each reason once
  std::vector<std::string> disagreements;  // one line each; such a shape was not timed
};

// A plan must not be slower than eager: one whose interval lies wholly below this fails the run.
inline constexpr double kLeastRatio = 0.97;

// epilogue.compile, epilogue.fused (the row chain itself, whatever compile chose), epilogue.int8.
bool is_ours(const std::string& contender) {
  return contender == "epilogue.compile" || contender == "epilogue.fused" ||
         contender == "epilogue.int8";
}

bool is_too_slow(const bench::PairTiming& timing) {
  return is_ours(timing.name) && timing.ratio.high < kLeastRatio;
}

using bench::Contender;
using bench::Disturbance;
using Kind = PortabilityShape::Kind;

constexpr PortabilityShape kSmallShapes[] = {
    {Kind::linear, 1, 32, 64},  {Kind::linear, 1024, 32, 64}, {Kind::linear, 8192, 64, 64},
    {Kind::mlp, 16, 64, 256},   {Kind::mlp, 64, 64, 256},     {Kind::mlp, 1, 768, 3072},
    {Kind::mlp, 2, 768, 3072},  {Kind::mlp, 4, 768, 3072},    {Kind::mlp, 8, 768, 3072},
    {Kind::step, 256, 64, 256}, {Kind::step, 64, 784, 256},
};
constexpr PortabilityShape kMiddleShapes[] = {
    {Kind::mlp, 4, 2048, 8192},   {Kind::mlp, 256, 768, 3072},   {Kind::mlp, 1024, 784, 3072},
    {Kind::step, 128, 768, 3072}, {Kind::step, 1024, 768, 3072},
};
constexpr PortabilityShape kLargeShapes[] = {
    {Kind::mlp, 8192, 768, 3072}, {Kind::mlp, 512, 4096, 14336}, {Kind::mlp, 1, 4096, 14336}};
// Rows whose weights, not their products, take the time.
constexpr int64_t kFewRows = 8;
constexpr double kBlockMs = 2;

std::vector<PortabilityShape> shapes_of(const PortabilityOptions& o) {
  std::vector<PortabilityShape> shapes(std::begin(kSmallShapes), std::end(kSmallShapes));
  if (!o.quick) shapes.insert(shapes.end(), std::begin(kMiddleShapes), std::end(kMiddleShapes));
  if (o.large) shapes.insert(shapes.end(), std::begin(kLargeShapes), std::end(kLargeShapes));
  return shapes;
}

WorkloadOptions workload_options(const PortabilityShape& s, DType dtype, const std::string& mode) {
  WorkloadOptions o = {
      .batch = s.rows, .seq = 1, .mode = mode, .dtype = std::string(dtype_name(dtype))};
  switch (s.kind) {
    case Kind::linear:
      o.kind = "linear";
      o.in_dim = s.width;
      o.out_dim = s.hidden;
      break;
    case Kind::mlp:
    case Kind::step:
      o.kind = s.kind == Kind::mlp ? "mlp" : "train-step";
      o.dim = s.width;
      o.hidden = s.hidden;
      break;
  }
  return o;
}

double product_flops(const PortabilityShape& s) {
  const double one = 2 * static_cast<double>(s.rows) * static_cast<double>(s.width) *
                     static_cast<double>(s.hidden);
  switch (s.kind) {
    case Kind::linear: return one;
    case Kind::mlp: return 3 * one;
    // Three forward, three for the weights' gradients, one for that of the hidden values.
    case Kind::step: return 7 * one;
  }
  return one;
}

double weight_elements(const PortabilityShape& s) {
  const auto one = static_cast<double>(s.width) * static_cast<double>(s.hidden);
  return s.kind == Kind::linear ? one : 3 * one;
}

// Peaks and bandwidths of the level in use, each measured once.
class Ceilings {
 public:
  double peak_gflops(DType dtype) {
    double& peak = peaks_[{isa_name(active_isa()), dtype}];
    if (peak == 0) peak = measure::measure_peak_gflops(dtype);
    return peak;
  }
  double read_gb_per_s(int64_t bytes) {
    double& rate = reads_[{isa_name(active_isa()), bytes}];
    if (rate == 0) rate = measure::measure_read_gb_per_s(bytes);
    return rate;
  }

 private:
  std::map<std::pair<std::string_view, DType>, double> peaks_;
  std::map<std::pair<std::string_view, int64_t>, double> reads_;
};

double floor_ns(const PortabilityShape& s, DType dtype, Ceilings& ceilings) {
  const double products = product_flops(s) / ceilings.peak_gflops(dtype);
  if (s.kind != Kind::mlp || s.rows > kFewRows) return products;
  const double bytes = weight_elements(s) * static_cast<double>(dtype_bytes(dtype));
  return std::max(products, bytes / ceilings.read_gb_per_s(static_cast<int64_t>(bytes)));
}

struct Entrants {
  std::vector<BenchContender> all;  // eager first
  std::shared_ptr<void> keeps;      // what their calls use
};

// The step in two modes from the same weights: their first losses agree.
Entrants step_entrants(const PortabilityShape& s, DType dtype) {
  auto workloads = std::make_shared<std::vector<Workload>>();
  for (const char* mode : {"eager", "compile"})
    workloads->push_back(make_workload(workload_options(s, dtype, mode)));
  Entrants entrants;
  const char* names[] = {"epilogue.eager", "epilogue.compile"};
  for (size_t i = 0; i < 2; ++i) {
    Tensor loss = (*workloads)[i].call();
    entrants.all.push_back(
        {{names[i], [workloads, i] { (*workloads)[i].call(); }}, clone(loss.detach()), {}});
  }
  entrants.keeps = workloads;
  return entrants;
}

// Few rows may wait for weights of half the bytes.
void add_int8(const Workload& w, Entrants& entrants) {
  auto compiled = std::make_shared<Compiled>(w.function, CompileOptions{.int8_weights = true});
  const auto call = [compiled, x = w.input] {
    const NoGrad no_grad;
    return (*compiled)(x);
  };
  entrants.all.push_back({{"epilogue.int8", [call] { call(); }}, call(), {}});
}

class Portability {
 public:
  using Progress = std::function<void(int64_t, int64_t, const std::string&)>;
  Portability(const PortabilityOptions& options, const Progress& progress)
      : o_(options), progress_(progress), torch_(choose_torch(options.torch)) {}

  PortabilityRun run() {
    const Isa before = active_isa();
    run_.machine = bench::machine_line();
    const std::vector<PortabilityShape> shapes = shapes_of(o_);
    all_ = static_cast<int64_t>(shapes.size() * o_.levels.size() * o_.dtypes.size() *
                                o_.disturbances.size());
    for (const Isa level : o_.levels) {
      set_active_isa(level);
      know_machine();
      for (const DType dtype : o_.dtypes)
        for (const PortabilityShape& s : shapes) run_shape(s, dtype, level);
    }
    set_active_isa(before);
    return std::move(run_);
  }

 private:
  void run_shape(const PortabilityShape& s, DType dtype, Isa level) {
    const std::string what =
        fmt::format("{} {} {}", isa_name(level), dtype_name(dtype), shape_name(s));
    progress_(done_, all_, what);
    const Entrants entrants = entrants_of(s, dtype, level);
    if (agree(s, dtype, entrants, what))
      for (const Disturbance d : o_.disturbances) time_cell(s, dtype, level, d, entrants);
    done_ += static_cast<int64_t>(o_.disturbances.size());
  }

  // Peers take part at the machine's own level: theirs cannot be lowered within a process.
  Entrants entrants_of(const PortabilityShape& s, DType dtype, Isa level) {
    if (s.kind == Kind::step) return step_entrants(s, dtype);
    const WorkloadOptions options = workload_options(s, dtype, "eager");
    auto workload = std::make_shared<Workload>(make_workload(options));
    const bench::Model model = model_of(*workload);
    const auto quiet = [](const std::string&) {};
    BenchContenders contenders = level == detected_isa()
                                     ? make_contenders(*workload, model, options, torch_, quiet)
                                     : make_own_contenders(*workload, options);
    for (const SkippedContender& each : contenders.skipped)
      if (std::ranges::find(run_.skipped, each) == run_.skipped.end()) run_.skipped.push_back(each);
    Entrants entrants{std::move(contenders.present), workload};
    if (s.kind == Kind::mlp && s.rows <= kFewRows) add_int8(*workload, entrants);
    return entrants;
  }

  bool agree(const PortabilityShape& s, DType dtype, const Entrants& entrants,
             const std::string& what) {
    constexpr double kInt8Error = 0.03;
    bool agrees = true;
    for (const BenchContender& c : entrants.all) {
      const double error = bench::relative_l2(c.result, entrants.all[0].result);
      const double allowed = c.timed.name == "epilogue.int8" ? kInt8Error : allowed_error(s, dtype);
      if (error <= allowed) continue;  // NaN is no agreement
      agrees = false;
      run_.disagreements.push_back(
          fmt::format("{}: {}: relative L2 distance {:.1e} from eager, "
                      "allowed {:.1e}",
                      what, c.timed.name, error, allowed));
    }
    return agrees;
  }

  static double allowed_error(const PortabilityShape& s, DType dtype) {
    if (s.kind == Kind::step) return dtype == DType::f32 ? 1e-5 : 2e-2;
    // Roundings between ops differ; f32 sums lose with the root of their length.
    if (dtype == DType::f32) return 3e-6 * std::sqrt(static_cast<double>(s.hidden) / 3072 + 1);
    return dtype == DType::bf16 ? 1.2e-2 : 2e-3;
  }

  void time_cell(const PortabilityShape& s, DType dtype, Isa level, Disturbance disturbance,
                 const Entrants& entrants) {
    PortabilityCell cell{s, dtype, level, disturbance, {}, floor_ns(s, dtype, ceilings_)};
    std::vector<Contender> contenders;
    for (const BenchContender& c : entrants.all)
      if (disturbance == Disturbance::quiet || c.timed.name == "epilogue.eager" ||
          is_ours(c.timed.name))
        contenders.push_back(c.timed);
    {
      const bench::DisturbanceScope scope(disturbers_, disturbance);
      cell.timings = bench::time_pairs(contenders, o_.seconds, o_.rounds, kBlockMs);
    }
    run_.cells.push_back(std::move(cell));
  }

  bench::Disturbers disturbers_;  // first: before memory is large
  const PortabilityOptions& o_;
  const Progress& progress_;
  TorchChoice torch_;
  Ceilings ceilings_;
  PortabilityRun run_;
  int64_t done_ = 0;
  int64_t all_ = 0;
};

// `progress` hears how many cells are done, of how many, and what is timed now.
PortabilityRun run_portability(
    const PortabilityOptions& options,
    const std::function<void(int64_t, int64_t, const std::string&)>& progress) {
  return Portability(options, progress).run();
}

using bench::PairTiming;
using trace::Document;
using trace::Grid;
using trace::Heading;
using trace::Paragraph;

// Intervals that lie wholly below kLeastRatio, over all cells.
int64_t count_too_slow(const PortabilityRun& run) {
  int64_t count = 0;
  for (const PortabilityCell& c : run.cells)
    count += std::count_if(c.timings.begin(), c.timings.end(), is_too_slow);
  return count;
}

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
  return json_text(out, 2) + "\n";
}

// The run must outlive it.
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

struct PortabilityFlags {
  PortabilityOptions run;
  std::vector<std::string> levels;
  std::vector<std::string> dtypes = {"f32", "bf16"};
  bool is_quiet_only = false;
  int threads = 0;
  Format format = Format::text;
};

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

int run_portability_command(PortabilityFlags o) {
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
  print(portability_document(run, o.run), o.format);
  return run.disagreements.empty() && count_too_slow(run) == 0 ? kExitFine : kExitNo;
}

}  // namespace

void add_portability(CLI::App& bench_app, Body& run) {
  auto options = std::make_shared<PortabilityFlags>();
  CLI::App* app = bench_app.add_subcommand(
      "portability", "Checks that no plan is slower than eager, on every instruction set");
  app->add_option("--levels", options->levels, "instruction-set levels, e.g. avx2 avx512")
      ->option_text("LEVEL ... [all above baseline]");
  app->add_option("--dtypes", options->dtypes, "f32, bf16, f16")
      ->transform(dtype_value())
      ->check(choices({"f32", "bf16", "f16"}))
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
  app->callback([options, &run] { run = [options] { return run_portability_command(*options); }; });
}

}  // namespace epilogue::tool
