// SPDX-License-Identifier: Apache-2.0
// A trace does not say which PyTorch wrote it; its form does, roughly.
#pragma once

#include <cstdint>
#include <string>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

// "epilogue", "PyTorch profiler of 2026-02 or later", ...
std::string trace_era(const Trace& trace);

// What the trace's times are multiples of: 1000 before 2024-03, else 1.
int64_t clock_step_ns(const Trace& trace);

}  // namespace epilogue::trace
