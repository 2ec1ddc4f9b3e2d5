// SPDX-License-Identifier: Apache-2.0
// The longest gaps of a device whose idle moments are known already.
#pragma once

#include <vector>

#include "epilogue/trace/host.h"
#include "explain/timeline/idle_causes.h"

namespace epilogue::trace {

std::vector<IdleGap> idle_gaps(const Trace& trace, const Links& links, const BusiestDevice& busiest,
                               size_t most = 5);

}  // namespace epilogue::trace
