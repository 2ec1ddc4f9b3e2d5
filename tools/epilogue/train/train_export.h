// SPDX-License-Identifier: Apache-2.0
// The trained network as a file of its own.
#pragma once

#include <string>

#include "tools/epilogue/train/live_run.h"

namespace epilogue::tool {

// The weights under the network's own names (0.weight, ...). Metadata: "run", the flags as a JSON
// object; and of tables "table", a JSON object with what inputs and outputs mean: task, target,
// classes, target_mean, target_std, features ({name, mean, std}; an std of null: always 0). The
// same run gives the same bytes. Throws Error where the file cannot be written.
void export_model(const LiveRun& run, const std::string& path);

}  // namespace epilogue::tool
