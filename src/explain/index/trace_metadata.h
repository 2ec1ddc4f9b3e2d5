// SPDX-License-Identifier: Apache-2.0
// Entries of a trace's top-level object, and what they and the events' form say about who wrote it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

// Raw JSON; empty where there is no such key. The view refers to the trace.
std::optional<std::string_view> find_metadata(const Trace& trace, std::string_view key);

// A positive number; empty where the key is not there or is anything else.
std::optional<double> metadata_number(const Trace& trace, std::string_view key);

// True for a trace that this project recorded on a CPU: kernels run when they are launched, and may
// say what they compute and move.
bool is_own_cpu_trace(const Trace& trace);

// Which program recorded a trace, as its metadata say (the readers of src/trace write them).
enum class Recorder : uint8_t { torch, own, nsight, xla };
Recorder recorder_of(const Trace& trace);

// A trace does not say which PyTorch wrote it; its form does, roughly.

// "epilogue", "PyTorch profiler of 2026-02 or later", ...
std::string trace_era(const Trace& trace);

// The unit of the trace's times: 1000 before 2024-03, else 1.
int64_t clock_step_ns(const Trace& trace);

}  // namespace epilogue::trace
