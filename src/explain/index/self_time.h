// SPDX-License-Identifier: Apache-2.0
// Time that an op spends itself, not in the ops it calls.
#pragma once

#include <cstdint>
#include <vector>

#include "epilogue/trace/links.h"

namespace epilogue::trace {

// By event; 0 for what is no op. Launch calls count as the time of the op that makes them.
std::vector<int64_t> self_times_ns(const Trace& trace, const Links& links);

}  // namespace epilogue::trace
