// SPDX-License-Identifier: Apache-2.0
// Device work as sets of moments.
#pragma once

#include <optional>

#include "analysis/intervals.h"
#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

namespace epilogue::trace {

// The device that worked longest; empty where none did.
std::optional<int32_t> busiest_device(const Trace& trace, const Links& links);
// When the device ran kernels, copies or fills.
IntervalSet device_busy(const Trace& trace, const Links& links, int32_t device);

}  // namespace epilogue::trace
