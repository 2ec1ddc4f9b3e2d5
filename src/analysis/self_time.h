// SPDX-License-Identifier: Apache-2.0
// Time that an op spends itself, not in the ops and calls it makes.
#pragma once

#include <cstdint>
#include <vector>

#include "epilogue/trace/links.h"

namespace epilogue::trace {

// By event; 0 for what is no op. Calls count as the op's own time where `with_calls` is set.
std::vector<int64_t> self_times_ns(const Trace& trace, const Links& links, bool with_calls);

}  // namespace epilogue::trace
