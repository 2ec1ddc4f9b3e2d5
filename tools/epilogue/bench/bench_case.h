// SPDX-License-Identifier: Apache-2.0
// One workload at one size: contenders agree first, then take turns.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/epilogue/bench/bench_contenders.h"

namespace epilogue::tool {

struct BenchOptions {
  WorkloadOptions workload;
  double seconds = 3;               // of timing, for all contenders together
  std::optional<double> tolerance;  // relative L2 error against double; default: by dtype
};

struct BenchRow {
  bench::Timing timing;
  double gflops = 0;   // of the products, at the minimum
  double speedup = 0;  // epilogue.eager's minimum over this one's
  double rel_l2_error = 0;
  std::optional<int64_t> peak_intermediate_bytes;
};

struct BenchCase {
  std::string what;
  std::vector<std::pair<std::string, int64_t>> shape;
  std::vector<BenchRow> rows;
  std::vector<SkippedContender> skipped;
  std::vector<std::string> disagreements;  // one line each; where there are any, rows is empty
};

BenchCase run_bench_case(const BenchOptions& options, TorchChoice& torch,
                         const std::function<void(const std::string&)>& progress);

}  // namespace epilogue::tool
