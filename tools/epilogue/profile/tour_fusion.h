// SPDX-License-Identifier: Apache-2.0
// The end of the tour: one MLP eager, compiled and fused; what changed, why, and what it is worth.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/epilogue/profile/profile_run.h"
#include "tools/epilogue/profile/workload.h"

namespace epilogue::tool {

// The modes of the MLP's three runs, in their order.
inline constexpr std::array<const char*, 3> kFusionModes = {"eager", "compile", "fused"};

struct FusionStory {
  std::string text;
  std::string conclusion;  // of compile beside eager: one sentence
  nlohmann::json json;     // modes, predicted_saving_us, saved_us, diffs, page
};

// From the traces that the runs (with shapes and memory) left. `workload` is the eager one.
// Writes OUT_DIR/mlp_eager_to_compile.html. Throws Error where a file cannot be read or written.
FusionStory tell_fusion(const std::array<ProfileRun, 3>& runs, const Workload& workload,
                        const std::string& out_dir);

}  // namespace epilogue::tool
