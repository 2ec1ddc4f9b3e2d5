// SPDX-License-Identifier: Apache-2.0
// The results of `epilogue bench`, as a document and a plot.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "explain/render/document.h"
#include "tools/epilogue/bench/bench_case.h"
#include "tools/epilogue/command.h"

namespace epilogue::tool {

// Figures of a whole run.
struct BenchMachine {
  std::optional<double> peak_gflops;  // of this dtype, measured in this run; empty: unknown
  double noise = 1;                   // bench::noise_probe()
  std::string description;            // bench::machine_line(), or a device's name
  // The peak of random values in tiles, where shares are of that instead. `peak_gflops` is of zeros
  // then, which tiles multiply faster.
  std::optional<double> random_peak_gflops = {};
};

// A device's peak is the rate of a large product of random values.
BenchMachine measure_machine(DType dtype, Device device);
// Prints the lines to stderr; the exit code.
int report_disagreements(const std::vector<std::string>& lines);

struct BenchRun {
  std::string kind;
  std::string dtype;
  BenchMachine machine;
  std::string swept;  // the size that differs from case to case; empty: there is one case
  std::vector<BenchCase> cases;  // not empty
  std::string tag;               // names the files of a sweep
  std::string plot_file;         // of a sweep
  std::string table_file;
};

// "AMD EPYC, 2 thread(s), avx2 (found avx2); f32 peak 190 GFLOP/s; noise 1.02x"; with both peaks
// "bf16 peak 7500 GFLOP/s of zeros, 4500 GFLOP/s of random values (shares are of the latter)".
std::string machine_text(const BenchMachine& machine, const std::string& dtype);
// threads, isa, cpu, peak_gflops, noise: the keys that reports share; random_peak_gflops where it
// is there.
nlohmann::json machine_json(const BenchMachine& machine, const std::string& dtype);

// The run must outlive it.
trace::Document bench_document(const BenchRun& run);
// GFLOP/s over the size that is swept, the measured peak among them.
std::string bench_svg(const BenchRun& run);

}  // namespace epilogue::tool
