// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/bench/bench_portability.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "bench/agreement.h"
#include "epilogue/autograd.h"
#include "epilogue/fused.h"
#include "epilogue/ops.h"
#include "epilogue/runtime.h"
#include "measure/measure.h"
#include "tools/epilogue/profile/machine.h"

namespace epilogue::tool {
namespace {

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
  WorkloadOptions o;
  o.dtype = dtype_name(dtype);
  o.mode = mode;
  o.batch = s.rows;
  o.seq = 1;
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

}  // namespace

std::string shape_name(const PortabilityShape& s) {
  constexpr const char* names[] = {"linear", "mlp", "step"};
  return fmt::format("{} {}x{}x{}", names[static_cast<size_t>(s.kind)], s.rows, s.width, s.hidden);
}

bool is_ours(const std::string& contender) {
  return contender == "epilogue.compile" || contender == "epilogue.fused" ||
         contender == "epilogue.int8";
}

bool is_too_slow(const bench::PairTiming& timing) {
  return is_ours(timing.name) && timing.ratio.high < kLeastRatio;
}

PortabilityRun run_portability(
    const PortabilityOptions& options,
    const std::function<void(int64_t, int64_t, const std::string&)>& progress) {
  return Portability(options, progress).run();
}

}  // namespace epilogue::tool
