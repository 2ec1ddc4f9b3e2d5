// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/bench/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/json.h"
#include "base/units.h"
#include "bench/harness.h"
#include "core/backend.h"
#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "epilogue/runtime.h"
#include "explain/render/document.h"
#include "measure/measure.h"
#include "tools/epilogue/bench/svg_plot.h"
#include "tools/epilogue/profile/device_option.h"

namespace epilogue::tool {
namespace {

using trace::Document;
using trace::Grid;
using trace::Heading;
using trace::Paragraph;

struct Known {
  const char* name;
  const char* color;
};
// In the order of columns and legends.
constexpr Known kKnown[] = {{"epilogue.eager", "#7fb3d5"}, {"epilogue.compile", "#1b6ca8"},
                            {"epilogue.fused", "#0b3c5d"}, {"onednn", "#d95f02"},
                            {"pytorch.eager", "#c39bd3"},  {"pytorch.compile", "#7d3c98"}};
constexpr const char* kPeakColor = "#999";

constexpr const char* kFootnotes[] = {
    "MAD: median absolute deviation; error: relative L2 against double, before anything is timed.",
    "GFLOP/s and share of the peak: of the products alone, at the minimum.",
    "intermediates: the most memory that a call's tensors take at once, without its result."};

const BenchRow* find_row(const BenchCase& c, const std::string& name) {
  for (const BenchRow& row : c.rows)
    if (row.timing.name == name) return &row;
  return nullptr;
}

// Empty where the peak is unknown.
std::optional<double> peak_pct(const BenchRun& run, const BenchRow& row) {
  if (!run.machine.peak_gflops) return {};
  return row.gflops / *run.machine.peak_gflops * 100;
}

template <class T>
nlohmann::json json_or_null(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

Grid case_grid(const BenchRun& run, const BenchCase& c) {
  Grid grid{{{"", true},
             {"min"},
             {"median"},
             {"MAD"},
             {"GFLOP/s"},
             {"of peak"},
             {"vs eager"},
             {"error"},
             {"intermediates"}},
            {},
            ""};
  for (const BenchRow& r : c.rows) {
    const std::optional<double> share = peak_pct(run, r);
    grid.rows.push_back(
        {r.timing.name, format_duration_ns(r.timing.min_ns), format_duration_ns(r.timing.median_ns),
         format_duration_ns(r.timing.mad_ns), fmt::format("{:.1f}", r.gflops),
         share ? fmt::format("{:.1f} %", *share) : "unknown", fmt::format("{:.2f}x", r.speedup),
         fmt::format("{:.1e}", r.rel_l2_error),
         r.peak_intermediate_bytes ? format_bytes(static_cast<double>(*r.peak_intermediate_bytes))
                                   : "unknown"});
  }
  return grid;
}

Grid sweep_grid(const BenchRun& run) {
  Grid grid{{{run.swept}}, {}, ""};
  for (const Known& k : kKnown) grid.columns.push_back({k.name});
  for (const BenchCase& c : run.cases) {
    std::vector<std::string> cells;
    for (const auto& [name, value] : c.shape)
      if (name == run.swept) cells.push_back(std::to_string(value));
    for (const Known& k : kKnown) {
      const BenchRow* row = find_row(c, k.name);
      cells.push_back(row == nullptr ? "-" : fmt::format("{:.1f}", row->gflops));
    }
    grid.rows.push_back(std::move(cells));
  }
  return grid;
}

// Who is missing in some case, and why; each reason once.
std::vector<SkippedContender> skipped_of(const BenchRun& run) {
  std::vector<SkippedContender> list;
  for (const BenchCase& c : run.cases)
    for (const SkippedContender& s : c.skipped)
      if (std::find(list.begin(), list.end(), s) == list.end()) list.push_back(s);
  return list;
}

trace::Bullets skipped_list(const BenchRun& run) {
  trace::Bullets list;
  for (const SkippedContender& s : skipped_of(run))
    list.items.push_back({s.name + ": " + s.reason, {}});
  return list;
}

nlohmann::json shape_json(const BenchCase& c) {
  auto shape = nlohmann::json::object();
  for (const auto& [name, value] : c.shape) shape[name] = value;
  return shape;
}

nlohmann::json row_json(const BenchRun& run, const BenchRow& r) {
  return {{"name", r.timing.name},
          {"min_us", r.timing.min_ns * 1e-3},
          {"median_us", r.timing.median_ns * 1e-3},
          {"mad_us", r.timing.mad_ns * 1e-3},
          {"samples", r.timing.samples},
          {"gflops", r.gflops},
          {"peak_pct", json_or_null(peak_pct(run, r))},
          {"speedup_vs_eager", r.speedup},
          {"rel_l2_error", r.rel_l2_error},
          {"peak_intermediate_bytes", json_or_null(r.peak_intermediate_bytes)}};
}

// The least time of a square product of random values, in ns.
int64_t product_ns(int64_t size, DType dtype, Device device) {
  constexpr int kWarmUps = 2;
  constexpr int kRuns = 15;
  const Tensor a = randn({size, size}, dtype).to(device);
  Backend& backend = backend_of(device);
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < kWarmUps + kRuns; ++i) {
    backend.synchronize();
    const int64_t start = monotonic_ns();
    mm(a, a);
    backend.synchronize();
    if (i >= kWarmUps) least = std::min(least, monotonic_ns() - start);
  }
  return least;
}

// The best rate of square products; none for dtypes that a device multiplies on the host. A product
// of a millisecond hides what a call costs: a larger one is not tried.
std::optional<double> device_peak_gflops(DType dtype, Device device) {
  if (dtype != DType::f32 && !is_low_precision(dtype)) return {};
  constexpr int64_t kLongNs = 1'000'000;
  const NoGrad no_grad;
  double peak = 0;
  for (int64_t size = 1024; size <= 8192; size *= 2) {
    const int64_t ns = product_ns(size, dtype, device);
    const auto n = static_cast<double>(size);
    peak = std::max(peak, 2 * n * n * n / static_cast<double>(ns));
    if (ns > kLongNs) break;
  }
  return peak;
}

}  // namespace

BenchMachine measure_machine(DType dtype, Device device) {
  if (device.type != DeviceType::cpu)
    return {device_peak_gflops(dtype, device), bench::noise_probe(), device_description(device)};
  return {measure::measure_peak_gflops(dtype), bench::noise_probe(), bench::machine_line()};
}

int report_disagreements(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) fmt::print(stderr, "epilogue: results differ: {}\n", line);
  return kExitNo;
}

std::string machine_text(const BenchMachine& machine, const std::string& dtype) {
  constexpr double kUnsteady = 1.15;  // see bench::noise_probe()
  std::string peak = machine.peak_gflops ? fmt::format("peak {:.0f} GFLOP/s", *machine.peak_gflops)
                                         : "peak unknown";
  if (machine.random_peak_gflops)
    peak += fmt::format(" of zeros, {:.0f} GFLOP/s of random values (shares are of the latter)",
                        *machine.random_peak_gflops);
  return fmt::format("{}; {} {}; noise {:.2f}x{}", machine.description, dtype, peak, machine.noise,
                     machine.noise > kUnsteady ? " (unsteady: doubtful figures)" : "");
}

nlohmann::json machine_json(const BenchMachine& machine, const std::string& dtype) {
  nlohmann::json out = {{"schema_version", kSchemaVersion},
                        {"dtype", dtype},
                        {"threads", num_threads()},
                        {"isa", active_isa_name()},
                        {"machine", machine.description},
                        {"peak_gflops", json_or_null(machine.peak_gflops)},
                        {"noise", machine.noise}};
  if (machine.random_peak_gflops) out["random_peak_gflops"] = *machine.random_peak_gflops;
  return out;
}

namespace {

std::string bench_json(const BenchRun& run) {
  nlohmann::json out = machine_json(run.machine, run.dtype);
  out["workload"] = run.kind;
  out["description"] = run.cases.back().what;
  auto& rows = out["rows"] = nlohmann::json::array();
  auto& skipped = out["skipped"] = nlohmann::json::array();
  auto shapes = nlohmann::json::array();
  for (const BenchCase& c : run.cases) {
    shapes.push_back(shape_json(c));
    for (const BenchRow& r : c.rows) {
      rows.push_back(row_json(run, r));
      if (!run.swept.empty()) rows.back()["shape"] = shape_json(c);
    }
  }
  for (const SkippedContender& s : skipped_of(run))
    skipped.push_back({{"name", s.name}, {"reason", s.reason}});
  if (run.swept.empty()) {
    out["shape"] = shapes[0];
  } else {
    out["shape"] = shapes;
    out["swept"] = run.swept;
    out["tag"] = run.tag;
    out["plot"] = run.plot_file;
    out["table"] = run.table_file;
  }
  return json_text(out, 2) + "\n";
}

}  // namespace

trace::Document bench_document(const BenchRun& run) {
  Document document;
  const BenchCase& last = run.cases.back();
  document.push_back(Heading{run.swept.empty()
                                 ? last.what + ", " + run.dtype
                                 : fmt::format("{}, {}, over {}: GFLOP/s at the minimum", run.kind,
                                               run.dtype, run.swept)});
  document.push_back(Paragraph{machine_text(run.machine, run.dtype)});
  document.push_back(run.swept.empty() ? case_grid(run, last) : sweep_grid(run));
  if (trace::Bullets list = skipped_list(run); !list.items.empty())
    document.push_back(std::move(list));
  for (const char* note : kFootnotes) document.push_back(Paragraph{note});
  if (!run.plot_file.empty())
    document.push_back(Paragraph{"plot: " + run.plot_file + ", table: " + run.table_file});
  document.json = [&run] { return bench_json(run); };
  return document;
}

std::string bench_svg(const BenchRun& run) {
  Plot plot;
  plot.title = fmt::format("{}, {}, {}", run.kind, run.dtype, run.machine.description);
  plot.x_label = run.swept;
  plot.y_label = "GFLOP/s";
  Series peak{"peak", kPeakColor, {}};
  for (const Known& k : kKnown) {
    Series series{k.name, k.color, {}};
    for (const BenchCase& c : run.cases) {
      const BenchRow* row = find_row(c, k.name);
      if (row == nullptr) continue;
      for (const auto& [name, value] : c.shape)
        if (name == run.swept) series.points.emplace_back(static_cast<double>(value), row->gflops);
    }
    if (!series.points.empty()) plot.series.push_back(std::move(series));
  }
  for (const BenchCase& c : run.cases)
    for (const auto& [name, value] : c.shape)
      if (name == run.swept && run.machine.peak_gflops)
        peak.points.emplace_back(static_cast<double>(value), *run.machine.peak_gflops);
  if (!peak.points.empty()) plot.series.push_back(std::move(peak));
  return render_svg(plot);
}

}  // namespace epilogue::tool
