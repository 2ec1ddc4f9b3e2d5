// SPDX-License-Identifier: Apache-2.0
// matmul-add over sizes: where does overhead-bound turn compute-bound?
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/epilogue/profile/workload.h"

namespace epilogue::tool {

struct CrossoverRow {
  int64_t size = 0;
  double dispatch_us = 0;  // per step, outside kernels, the recorder's own time taken out
  double kernel_us = 0;    // per step
  double gflops = 0;       // of the product, over kernel time
};

struct Crossover {
  std::vector<CrossoverRow> rows;
  // Where the two curves meet, interpolated between the sizes on both sides; in rising order. On a
  // noisy machine they may meet more than once.
  std::vector<double> crossings;
  // Where they meet once; else empty.
  std::optional<double> size() const {
    return crossings.size() == 1 ? std::optional(crossings[0]) : std::nullopt;
  }
};

// Profiles matmul-add at each size, on `base`'s dtype and seed. Traces are written to out_dir.
Crossover measure_crossover(const WorkloadOptions& base, const std::vector<int64_t>& sizes,
                            const std::string& out_dir,
                            const std::function<void(int64_t size)>& progress);

// Where dispatch and kernel time are equal, on logarithmic axes.
std::vector<double> crossings_of(const std::vector<CrossoverRow>& rows);

// A reading of the rows: which sizes overhead bounds and which the kernels, as one sentence.
std::string crossover_sentence(const Crossover& crossover);

std::string crossover_table(const Crossover& crossover);
std::string crossover_svg(const Crossover& crossover, const std::string& dtype);

}  // namespace epilogue::tool
