// SPDX-License-Identifier: Apache-2.0
// Collectives beside a main thread that does nothing else.
#pragma once

#include "epilogue/trace/host.h"
#include "explain/index/intervals.h"

namespace epilogue::trace {

// `between`: when the main thread was in no op. Empty where no collective of a CPU was recorded.
std::optional<HostCollectives> host_collectives(const Trace& trace, const IntervalSet& between);

}  // namespace epilogue::trace
