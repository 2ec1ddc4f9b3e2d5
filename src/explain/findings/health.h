// SPDX-License-Identifier: Apache-2.0
// The health of a recording of which launches and the profiler's cost are known already.
#pragma once

#include <cstdint>
#include <vector>

#include "epilogue/trace/explain.h"

namespace epilogue::trace {

std::vector<HealthItem> health(const Trace& trace, const Links& links,
                               int64_t kernels_before_launch, const ProfilerCost& profiler);

// Adds what was taken out of the trace; `span_ns` is its span without that.
void add_pauses(const Pauses& pauses, int64_t span_ns, std::vector<HealthItem>& items);

}  // namespace epilogue::trace
