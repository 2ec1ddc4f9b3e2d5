// SPDX-License-Identifier: Apache-2.0
// The cost of one recorded event, measured on this machine, now.
#pragma once

#include "epilogue/profiler.h"
#include "profile/recorder.h"

namespace epilogue::profiler {

// Dispatches some ten thousand small ops with and without the recorder (5 to 20 ms), recording what
// `options` say. Must not be called while a session records.
RecorderCost measure_recorder_cost(const RecorderOptions& options);

}  // namespace epilogue::profiler
