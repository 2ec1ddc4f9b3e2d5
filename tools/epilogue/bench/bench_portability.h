// SPDX-License-Identifier: Apache-2.0
// Is a plan ever slower than what it replaces? Each mode beside eager, on every instruction-set
// level of the machine, in quiet and beside processes that disturb.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "bench/disturbance.h"
#include "bench/pairs.h"
#include "explain/render/document.h"
#include "tools/epilogue/bench/bench_contenders.h"
#include "tools/epilogue/command.h"

namespace epilogue::tool {

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
std::string shape_name(const PortabilityShape& shape);

// One shape, dtype, level and disturbance.
struct PortabilityCell {
  PortabilityShape shape;
  DType dtype = DType::f32;
  Isa level = Isa::baseline;
  bench::Disturbance disturbance = bench::Disturbance::quiet;
  std::vector<bench::PairTiming> timings;  // eager first
  // What the products and their weights need at least, by the peak and the bandwidth measured in
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
bool is_ours(const std::string& contender);
bool is_too_slow(const bench::PairTiming& timing);

// `progress` hears how many cells are done, of how many, and what is timed now.
PortabilityRun run_portability(
    const PortabilityOptions& options,
    const std::function<void(int64_t done, int64_t all, const std::string& what)>& progress);

// Intervals that lie wholly below kLeastRatio, over all cells.
int64_t count_too_slow(const PortabilityRun& run);

// The run must outlive it.
trace::Document portability_document(const PortabilityRun& run, const PortabilityOptions& options);

// Adds `bench portability`.
void add_bench_portability(CLI::App& bench_app, Body& run);

}  // namespace epilogue::tool
