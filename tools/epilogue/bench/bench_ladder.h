// SPDX-License-Identifier: Apache-2.0
// The ladder: one product and one gated MLP, from three loops to a row chain, each rung without one
// fault of the one below.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/harness.h"
#include "epilogue/dtype.h"

namespace epilogue::tool {

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
  std::vector<LadderRung> rungs;
  std::vector<std::string> disagreements;  // where there are any, rungs is empty
};

// The product's ladder, then the MLP's. Throws Error on sizes below 1 and on dtypes other than f32
// and bf16.
std::vector<Ladder> climb_ladders(const LadderOptions& options,
                                  const std::function<void(const std::string&)>& progress);

}  // namespace epilogue::tool
