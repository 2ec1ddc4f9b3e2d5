// SPDX-License-Identifier: Apache-2.0
// The health of a recording of which launches and the profiler's cost are known already.
#pragma once

#include <cstdint>
#include <vector>

#include "epilogue/trace/explain.h"

namespace epilogue::trace {

std::vector<HealthItem> health(const Trace& trace, const Links& links,
                               int64_t kernels_before_launch, const ProfilerCost& profiler);

}  // namespace epilogue::trace
