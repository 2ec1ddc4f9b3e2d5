// SPDX-License-Identifier: Apache-2.0
// The tour's documents of a step.
#pragma once

#include <string>

#include "explain/render/document.h"
#include "tools/epilogue/profile/profile_run.h"
#include "tools/epilogue/profile/tour_stops.h"

namespace epilogue::tool {

// The step's largest rows in few columns (the file beside the trace has all of both), its sums,
// what to see and where its files lie.
trace::Document step_document(int number, const TourStop& stop, const Workload& workload,
                              const ProfileRun& run, const std::string& page);

}  // namespace epilogue::tool
