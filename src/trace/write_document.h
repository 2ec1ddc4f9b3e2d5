// SPDX-License-Identifier: Apache-2.0
// The parts around the events of a trace file: the top-level keys, names of processes and
// threads, the span of the recording.
#pragma once

#include <string>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

// From "{" to the opening bracket of traceEvents.
void append_document_head(std::string& out, const Trace& trace);
// The M events: names, labels and sort order of processes and threads. Each ends with a comma.
void append_names(std::string& out, const Trace& trace);
// The span, its instants and everything to the closing "}".
void append_document_tail(std::string& out, const Trace& trace, const std::string& trace_name);

}  // namespace epilogue::trace
