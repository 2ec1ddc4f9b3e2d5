// SPDX-License-Identifier: Apache-2.0
// Python functions and ranges of the program by the time that they spend themselves.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "epilogue/trace/host.h"
#include "explain/index/intervals.h"

namespace epilogue::trace {

// Functions of one thread, within `moments` only; the longest first. The time of a built-in counts
// for the function that calls it. Empty without Python frames.
std::vector<HostFunction> functions_within(const Trace& trace, int32_t pid, int64_t tid,
                                           const IntervalSet& moments);

// Ranges of the program on one thread (user annotations, but for steps and those of PyTorch
// itself), within `moments` only; the longest first.
std::vector<HostRange> ranges_within(const Trace& trace, int32_t pid, int64_t tid,
                                     const IntervalSet& moments);

// What to do about the time of a Python function of a known library, after "out of the step"; "" if
// nothing particular is known.
std::string_view remedy_of_function(std::string_view name);

}  // namespace epilogue::trace
