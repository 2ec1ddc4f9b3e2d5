// SPDX-License-Identifier: Apache-2.0
// The trained network as a file of its own.
#pragma once

#include <string>

#include "tools/epilogue/train/live_run.h"

namespace epilogue::tool {

// train::save_model() of the run, with the flags as a JSON object under "run". The same run gives
// the same bytes. Throws Error where the file cannot be written.
void export_model(const LiveRun& run, const std::string& path);

}  // namespace epilogue::tool
