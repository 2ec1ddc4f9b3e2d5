// SPDX-License-Identifier: Apache-2.0
// What one recorded event costs, measured on this machine, now.
#pragma once

#include "epilogue/profiler.h"
#include "profile/recorder.h"

namespace epilogue::profiler {

// Runs the recorder over made-up events (about 2 ms) with the given options. Must not be called
// while a session records.
RecorderCost measure_recorder_cost(const RecorderOptions& options);

}  // namespace epilogue::profiler
