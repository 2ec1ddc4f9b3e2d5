// SPDX-License-Identifier: Apache-2.0
// matmul-add over sizes: where does overhead-bound turn compute-bound?
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "workload.h"

namespace epilogue::tool {

struct CrossoverRow {
  int64_t size = 0;
  double dispatch_us = 0;  // per step, outside kernels, the recorder's own time taken out
  double kernel_us = 0;    // per step
  double gflops = 0;       // of the product, over kernel time
};

struct Crossover {
  std::vector<CrossoverRow> rows;
  // Where the two curves meet, interpolated between the sizes on both sides; empty if they do not.
  std::optional<double> size;
};

// Profiles matmul-add at each size, on `base`'s dtype and seed. Traces are written to out_dir.
Crossover measure_crossover(const WorkloadOptions& base, const std::vector<int64_t>& sizes,
                            const std::string& out_dir,
                            const std::function<void(int64_t size)>& progress);

// Where dispatch and kernel time are equal, on logarithmic axes.
std::optional<double> crossing(const std::vector<CrossoverRow>& rows);

std::string crossover_table(const Crossover& crossover);
std::string crossover_svg(const Crossover& crossover, const std::string& dtype);

}  // namespace epilogue::tool
