// SPDX-License-Identifier: Apache-2.0
// Entries of a trace's top-level object.
#pragma once

#include <optional>
#include <string_view>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

// Raw JSON; empty where there is no such key. The view refers to the trace.
std::optional<std::string_view> find_metadata(const Trace& trace, std::string_view key);

// A positive number; empty where the key is not there or is anything else.
std::optional<double> metadata_number(const Trace& trace, std::string_view key);

// True for a trace that this project recorded on a CPU: kernels run when they are launched, and may
// say what they compute and move.
bool is_own_trace(const Trace& trace);

}  // namespace epilogue::trace
