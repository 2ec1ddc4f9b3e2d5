// SPDX-License-Identifier: Apache-2.0
// The steps of the tour and what a reader should see at each.
#pragma once

#include <string>
#include <vector>

#include "tools/epilogue/profile/workload.h"

namespace epilogue::tool {

struct TourOptions {
  std::string out_dir = "traces";
  std::string tag;  // of a folder in out_dir; empty: out_dir itself
  std::string dtype = "bf16";
  std::string device = "cpu";
  int threads = 0;  // 0: as many as the process has
  bool quick = false;
};

struct TourStop {
  std::string title;
  std::string what_to_see;
  WorkloadOptions workload;
  bool is_mlp = false;  // one of the three that are compared in the end
};

// matmul + add, nn.Linear, then the GeGLU MLP in each mode of kFusionModes.
std::vector<TourStop> tour_stops(const TourOptions& options);

}  // namespace epilogue::tool
