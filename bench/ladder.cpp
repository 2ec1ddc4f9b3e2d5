// SPDX-License-Identifier: Apache-2.0
// The ladder: one product and one gated MLP, from three loops to a row chain, each rung without one
// fault of the one below. Where tiles multiply bf16, the product has a rung for each technique that
// they need.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/units.h"
#include "bench/agreement.h"
#include "bench/harness.h"
#include "bench/ladder_kernels.h"
#include "bench/ladder_tiles.h"
#include "bench/tile_peak.h"
#include "epilogue/autograd.h"
#include "epilogue/compile.h"
#include "epilogue/ops.h"
#include "epilogue/runtime.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/bench/bench_report.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/memory_limit.h"
#include "tools/epilogue/profile/machine.h"

namespace epilogue::tool {
namespace {

struct LadderOptions {
  int64_t rows = 512;
  int64_t dim = 768;      // of the product [rows, dim] x [dim, dim] and the MLP
  int64_t hidden = 3072;  // of the MLP
  DType dtype = DType::f32;
  uint64_t seed = 0;
  double seconds = 4;               // of timing, per ladder; slow rungs take longer
  std::optional<double> tolerance;  // as BenchOptions has it
};

struct LadderRung {
  bench::Timing timing;
  double gflops = 0;
  double factor = 1;  // the time of the rung below over this one's
  double rel_l2_error = 0;
  std::string removes;  // one sentence
};

struct Ladder {
  std::string name;  // "gemm", "geglu mlp"
  std::vector<int64_t> shape;
  std::vector<LadderRung> rungs = {};
  std::vector<std::string> disagreements = {};  // where there are any, rungs is empty
  // The peak of random values in tiles, measured in turns with the rungs; empty: has_tiles() is
  // false.
  std::optional<double> random_peak_gflops = {};
};

struct LadderCommand {
  LadderOptions ladder;
  std::string dtype = "f32";
  int threads = 0;
  Format format = Format::text;
};

namespace ladder = bench::ladder;

// y = x w^T of some kind, with what it prepares for w.
using Product = std::function<void(const Tensor& x, const Tensor& y)>;
using MakeProduct = std::function<Product(const Tensor& w)>;

struct Rung {
  std::string name;
  std::string removes;
  std::function<Tensor()> call;
};

// The rungs that are loops.
struct LoopRung {
  const char* name;
  const char* removes;
  MakeProduct make;
};

std::vector<LoopRung> loop_rungs() {
  return {
      {"naive loops", "Three loops: each sum waits for the product before it.",
       [](const Tensor& w) {
         return [w](const Tensor& x, const Tensor& y) { ladder::naive_product(x, w, y); };
       }},
      {"+ blocked",
       "Removes waiting and reloading: 4 x 4 sums share what is loaded, and a block of weights "
       "stays in cache while the rows pass.",
       [](const Tensor& w) {
         return [w](const Tensor& x, const Tensor& y) { ladder::blocked_product(x, w, y); };
       }},
      {"+ packed",
       "Removes strided reads: weights lie in the order in which the inner loop needs them, and it "
       "takes four at a time.",
       [](const Tensor& w) {
         auto packed = std::make_shared<ladder::PackedProduct>(w);
         return [packed](const Tensor& x, const Tensor& y) { packed->run(x, y); };
       }}};
}

std::function<Tensor()> compiled(Compiled::Function function, const Tensor& x,
                                 std::vector<std::string> skip) {
  CompileOptions options;
  options.skip = std::move(skip);
  return [f = std::make_shared<Compiled>(std::move(function), options), x] {
    const NoGrad no_grad;
    return (*f)(x);
  };
}

const char* kVectorKernel =
    "Removes narrow arithmetic: a micro-kernel for the widest vectors or tiles of this processor, "
    "its sums all in registers.";

const char* kTileKernel =
    "Removes narrow arithmetic by the steps of the product above, all but overlapped stores.";

const char* kOverlap =
    "Removes the epilogue's own time if a tile unit multiplies: a block's gelu and mul run on the "
    "vector units while the tiles of the next block multiply. If vectors multiply, both need the "
    "same units, and nothing changes.";

bool has_tiles(DType dtype) { return dtype == DType::bf16 && ladder::TiledProduct::is_there(); }

// Calls at another level than the one in use.
std::function<Tensor()> at_level(Isa isa, std::function<Tensor()> call) {
  class Scope {
   public:
    explicit Scope(Isa isa) { set_active_isa(isa); }
    ~Scope() { set_active_isa(before_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Isa before_ = active_isa();
  };
  return [isa, call = std::move(call)] {
    const Scope scope(isa);
    return call();
  };
}

struct TileRung {
  const char* name;
  const char* removes;
  ladder::TileStep step;
};
constexpr TileRung kTileRungs[] = {
    {"+ tile unit",
     "Removes most instructions: one multiplies 16 rows by 16 columns, 32 deep, and 2 x 2 tiles of "
     "sums share what is loaded. Rows are read as they lie in x.",
     ladder::TileStep::panels},
    {"+ tiled rows",
     "Removes reads at x's stride, where rows compete for places of L1: rows and weights lie tile "
     "by tile in the order of use, and rows pass by L1's weights.",
     ladder::TileStep::tiled},
    {"+ overlapped stores",
     "Removes the time in which the tile unit waits for vectors: sums become lines of y between "
     "the products of the next 32 rows.",
     ladder::TileStep::overlaps},
    {"+ lines ahead",
     "Removes waits for L3: the weights of the next 32 columns are fetched line by line while "
     "these multiply.",
     ladder::TileStep::fetches},
    {"+ cache blocks",
     "Removes misses of L1: two thirds of it keep weights, which others pass by. If most would "
     "pass, k is cut, and sums wait in L2.",
     ladder::TileStep::blocks}};
const char* kDotProducts =
    "Removes narrow arithmetic: dot products of pairs of bf16 in vectors of 64 bytes "
    "(AVX512-BF16), sums in registers. As with EPILOGUE_ISA=avx512_bf16.";
const char* kStreamedStores =
    "Removes reads of y's lines, which common stores begin with: results of 4 x L2 or more are "
    "written past the caches. Smaller ones gain nothing. compile() runs all of this.";

// y = x w^T by kernels that write into y.
std::function<Tensor()> into(const Tensor& x, int64_t n, const Product& product) {
  const Tensor y = empty({x.size(0), n}, x.dtype());
  return [=] {
    product(x, y);
    return y;
  };
}

std::vector<Rung> gemm_rungs(const Tensor& x, const Tensor& w) {
  std::vector<Rung> rungs;
  for (const LoopRung& loop : loop_rungs())
    rungs.push_back({loop.name, loop.removes, into(x, w.size(0), loop.make(w))});
  const auto function = [w](std::span<const Tensor> in) {
    return std::vector<Tensor>{linear(in[0], w)};
  };
  if (!has_tiles(x.dtype())) {
    rungs.push_back({"+ vector kernel", kVectorKernel, compiled(function, x, {})});
    return rungs;
  }
  rungs.push_back(
      {"+ vector kernel", kDotProducts, at_level(Isa::avx512_bf16, compiled(function, x, {}))});
  for (const TileRung& rung : kTileRungs) {
    const auto product = std::make_shared<ladder::TiledProduct>(w, rung.step);
    rungs.push_back({rung.name, rung.removes,
                     into(x, w.size(0), [product](const Tensor& from, const Tensor& y) {
                       product->run(from, y);
                     })});
  }
  rungs.push_back({"+ streamed stores", kStreamedStores, compiled(function, x, {})});
  return rungs;
}

struct MlpWeights {
  Tensor gate, up, down;
};

std::function<Tensor()> loop_mlp(const LoopRung& loop, const Tensor& x, const MlpWeights& w) {
  const Tensor gate = empty({x.size(0), w.gate.size(0)}, x.dtype());
  const Tensor up = empty_like(gate);
  Tensor y = empty({x.size(0), w.down.size(0)}, x.dtype());
  return [=, gate_product = loop.make(w.gate), up_product = loop.make(w.up),
          down_product = loop.make(w.down)] {
    gate_product(x, gate);
    ladder::scalar_gelu(gate, gate);
    up_product(x, up);
    ladder::scalar_mul(gate, up, up);
    down_product(up, y);
    return y;
  };
}

std::vector<Rung> mlp_rungs(const Tensor& x, const MlpWeights& w) {
  std::vector<Rung> rungs;
  for (const LoopRung& loop : loop_rungs())
    rungs.push_back({loop.name, loop.removes, loop_mlp(loop, x, w)});
  const auto function = [w](std::span<const Tensor> in) {
    const Tensor gate = gelu(linear(in[0], w.gate), Gelu::tanh);
    return std::vector<Tensor>{linear(mul(gate, linear(in[0], w.up)), w.down)};
  };
  const bool tiles = has_tiles(x.dtype());
  rungs.push_back({tiles ? "+ tile kernel" : "+ vector kernel",
                   std::string(tiles ? kTileKernel : kVectorKernel) +
                       " gelu and mul are vectorised passes now.",
                   compiled(function, x,
                            {"fuse_epilogues", "fuse_pointwise", "merge_gemms", "form_row_chains",
                             "overlap_epilogues"})});
  rungs.push_back({"+ epilogue",
                   "Removes two passes over hidden tensors: gelu and mul run on a block of the "
                   "product while it is in L1.",
                   compiled(function, x, {"merge_gemms", "form_row_chains", "overlap_epilogues"})});
  rungs.push_back(
      {"+ merged gate/up",
       "Removes one pass over x and the gate's tensor: gate and up are one product whose "
       "halves meet in one block.",
       compiled(function, x, {"form_row_chains", "overlap_epilogues"})});
  rungs.push_back(
      {"+ row chain",
       "Removes the hidden tensor: blocks of rows go through all products, and what lies "
       "between them stays in L2.",
       compiled(function, x, {"overlap_epilogues"})});
  rungs.push_back({"+ overlapped epilogue", kOverlap, compiled(function, x, {})});
  return rungs;
}

// Checks every rung against the product in double, then times them in turns.
Ladder climb(Ladder result, const std::vector<Rung>& rungs, const bench::Model& model,
             const Tensor& x, const LadderOptions& o) {
  const std::vector<int64_t> rows = bench::checked_rows(x.size(0));
  const Tensor exact = bench::exact_rows(model, x, rows);
  const double allowed = o.tolerance.value_or(bench::tolerance_for(o.dtype, model).against_exact);
  std::vector<double> errors;
  std::vector<bench::Contender> contenders;
  for (const Rung& rung : rungs) {
    errors.push_back(bench::relative_l2(bench::rows_of(rung.call(), rows), exact));
    if (!(errors.back() <= allowed))
      result.disagreements.push_back(
          fmt::format("{}, {}: relative L2 error {:.1e} against double, allowed {:.1e}",
                      result.name, rung.name, errors.back(), allowed));
    contenders.push_back({rung.name, [call = rung.call] { call(); }});
  }
  if (!result.disagreements.empty()) return result;
  std::optional<simd::TileProbe> probe;
  if (has_tiles(o.dtype)) {
    probe.emplace();
    contenders.push_back({"peak of random values", [&] { bench::run_tile_probe(*probe); }});
  }
  const auto timings =
      bench::interleave(contenders, bench::plan_for(contenders, o.seconds, bench::kSampleUs));
  const double flops = bench::product_flops(model, x.size(0));
  for (size_t i = 0; i < rungs.size(); ++i)
    result.rungs.push_back({timings[i], flops / timings[i].min_ns,
                            i == 0 ? 1 : timings[i - 1].min_ns / timings[i].min_ns, errors[i],
                            rungs[i].removes});
  if (probe) result.random_peak_gflops = bench::tile_probe_flops() / timings.back().min_ns;
  return result;
}

// The product's ladder, then the MLP's. Throws Error on sizes below 1 and on dtypes other than f32
// and bf16.
std::vector<Ladder> climb_ladders(const LadderOptions& o,
                                  const std::function<void(const std::string&)>& progress) {
  if (o.rows < 1 || o.dim < 1 || o.hidden < 1)
    throw Error(fmt::format("[ladder] expected sizes of 1 or more, got {} x {} x {}", o.rows, o.dim,
                            o.hidden));
  if (o.dtype != DType::f32 && o.dtype != DType::bf16)
    throw Error("[--dtype] expected f32 or bf16 for the ladder, got '" +
                std::string(dtype_name(o.dtype)) + "'");
  manual_seed(o.seed);
  const auto weight = [&](int64_t n, int64_t k) {  // as nn.Linear draws it
    const double bound = 1 / std::sqrt(static_cast<double>(k));
    return uniform({n, k}, -bound, bound, o.dtype);
  };
  const Tensor x = randn({o.rows, o.dim}, o.dtype);
  const Tensor w = weight(o.dim, o.dim);
  const MlpWeights mlp = {weight(o.hidden, o.dim), weight(o.hidden, o.dim),
                          weight(o.dim, o.hidden)};
  bench::Model gemm_model;
  gemm_model.stages.push_back({.weight = w});
  bench::Model mlp_model;
  mlp_model.stages.push_back(
      {.weight = mlp.gate, .activation = nn::Activation::geglu, .up = mlp.up});
  mlp_model.stages.push_back({.weight = mlp.down});
  std::vector<Ladder> ladders;
  progress("gemm");
  ladders.push_back(climb({"gemm", {o.rows, o.dim, o.dim}}, gemm_rungs(x, w), gemm_model, x, o));
  progress("geglu mlp");
  ladders.push_back(
      climb({"geglu mlp", {o.rows, o.dim, o.hidden}}, mlp_rungs(x, mlp), mlp_model, x, o));
  return ladders;
}

struct LadderRun {
  BenchMachine machine;
  std::string dtype;
  std::vector<Ladder> ladders;  // not empty
};

// In percent.
double share_of_peak(const LadderRun& run, const LadderRung& rung) {
  const BenchMachine& machine = run.machine;
  return rung.gflops / machine.random_peak_gflops.value_or(machine.peak_gflops.value()) * 100;
}

trace::Grid grid_of(const LadderRun& run, const Ladder& ladder) {
  trace::Grid grid{
      {{"", true}, {"min"}, {"MAD"}, {"GFLOP/s"}, {"of peak"}, {"step"}, {"error"}}, {}, ""};
  for (const LadderRung& r : ladder.rungs)
    grid.rows.push_back({r.timing.name, format_duration_ns(r.timing.min_ns),
                         format_duration_ns(r.timing.mad_ns), fmt::format("{:.1f}", r.gflops),
                         fmt::format("{:.1f} %", share_of_peak(run, r)),
                         fmt::format("{:.2f}x", r.factor), fmt::format("{:.1e}", r.rel_l2_error)});
  return grid;
}

// One for each name: of a step that several ladders have, the last one's says most.
trace::Bullets sentences_of(const std::vector<Ladder>& ladders) {
  std::vector<const LadderRung*> rungs;
  for (const Ladder& ladder : ladders) {
    for (const LadderRung& r : ladder.rungs) {
      const auto known = std::ranges::find_if(
          rungs, [&](const LadderRung* k) { return k->timing.name == r.timing.name; });
      if (known == rungs.end()) {
        rungs.push_back(&r);
      } else {
        *known = &r;
      }
    }
  }
  trace::Bullets list;
  for (const LadderRung* r : rungs) list.items.push_back({r->timing.name + ": " + r->removes, {}});
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
                      {"peak_pct", share_of_peak(run, r)},
                      {"factor", r.factor},
                      {"rel_l2_error", r.rel_l2_error},
                      {"removes", r.removes}});
    ladders.push_back({{"name", ladder.name}, {"shape", ladder.shape}, {"rows", rows}});
  }
  return json_text(out, 2) + "\n";
}

// The run must outlive it.
trace::Document ladder_document(const LadderRun& run) {
  trace::Document document;
  const trace::Paragraph machine{machine_text(run.machine, run.dtype)};
  // Whoever reads shares of one of two peaks must know first which it is.
  const bool machine_first = run.machine.random_peak_gflops.has_value();
  if (machine_first) document.push_back(machine);
  for (const Ladder& ladder : run.ladders) {
    document.push_back(trace::Heading{fmt::format("{} {}, {}: what each step buys", ladder.name,
                                                  fmt::join(ladder.shape, " x "), run.dtype)});
    document.push_back(grid_of(run, ladder));
  }
  document.push_back(sentences_of(run.ladders));
  if (!machine_first) document.push_back(machine);
  document.json = [&run] { return ladder_json(run); };
  return document;
}

int run_ladder(LadderCommand o) {
  o.ladder.dtype = parse_dtype(o.dtype);
  const auto rows = static_cast<double>(o.ladder.rows);
  const auto dim = static_cast<double>(o.ladder.dim);
  const auto hidden = static_cast<double>(o.ladder.hidden);
  require_memory("--rows, --dim, --hidden", 2 * rows * dim + 3 * dim * hidden, o.ladder.dtype);
  if (o.threads != 0) set_num_threads(o.threads);
  know_machine();
  constexpr int64_t kSteps = 3;
  ProgressBar bar("bench ladder", kSteps);
  int64_t done = 0;
  bar.update(done, "measuring the peak");
  LadderRun run{measure_machine(o.ladder.dtype, Device{}), o.dtype, {}};
  run.ladders = climb_ladders(o.ladder, [&](const std::string& note) { bar.update(++done, note); });
  bar.finish();
  for (const Ladder& l : run.ladders)
    run.machine.random_peak_gflops = std::max(run.machine.random_peak_gflops, l.random_peak_gflops);
  std::vector<std::string> disagreements;
  for (const Ladder& l : run.ladders)
    disagreements.insert(disagreements.end(), l.disagreements.begin(), l.disagreements.end());
  if (!disagreements.empty()) return report_disagreements(disagreements);
  print(ladder_document(run), o.format);
  return kExitFine;
}

}  // namespace

void add_ladder(CLI::App& bench_app, Body& run) {
  auto options = std::make_shared<LadderCommand>();
  LadderOptions& ladder = options->ladder;
  CLI::App* app =
      bench_app.add_subcommand("ladder", "Shows what each optimisation buys, step by step");
  app->add_option("--rows", ladder.rows, "rows of x")
      ->check(whole_number(1))
      ->option_text("N [512]");
  app->add_option("--dim", ladder.dim, "width")->check(whole_number(1))->option_text("N [768]");
  app->add_option("--hidden", ladder.hidden, "hidden width of the MLP")
      ->check(whole_number(1))
      ->option_text("N [3072]");
  app->add_option("--dtype", options->dtype, "f32 or bf16")
      ->transform(dtype_value())
      ->check(choices({"f32", "bf16", "f16"}))
      ->option_text("DTYPE [f32]");
  add_threads(*app, options->threads);
  app->add_option("--seed", ladder.seed, "seed of weights and input")
      ->check(whole_number(0))
      ->option_text("N [0]");
  app->add_option("--seconds", ladder.seconds,
                  "seconds of timing per ladder; slow steps take longer")
      ->check(number_above(0))
      ->option_text("S [4]");
  app->add_option("--tolerance", ladder.tolerance, "relative L2 error allowed against double")
      ->check(number_from(0))
      ->option_text("X [by dtype]");
  add_format(*app, options->format);
  app->footer(
      "Runs the same product and the same GeGLU MLP as naive loops, blocked, packed, with a\n"
      "vector kernel, with its epilogue fused, with gate and up merged, and as one row chain.\n"
      "Each runs on all threads. In bf16 on AMX the product has a step for each technique of tile\n"
      "products, and shares are of the peak that random values reach.\n"
      "Example: epilogue bench ladder --rows 256 --dtype bf16");
  app->callback([options, &run] { run = [options] { return run_ladder(*options); }; });
}

}  // namespace epilogue::tool
