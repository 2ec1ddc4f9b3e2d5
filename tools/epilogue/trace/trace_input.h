// SPDX-License-Identifier: Apache-2.0
// Shared by the trace commands: which trace, and which part of it.
#pragma once

#include <optional>
#include <string>

#include "epilogue/trace/answer.h"

namespace CLI {
class App;
}

namespace epilogue::tool {

// Adds --step, --from and --to.
void add_trace_part(CLI::App& app, trace::TraceInput& input);

// Adds --cpu and --cpu-threads.
void add_cpu_choice(CLI::App& app, trace::CpuChoice& choice);

// Adds --capture.
void add_capture(CLI::App& app, std::optional<trace::TraceInput>& capture);

// Progress on a terminal and warnings, both on stderr.
trace::AnswerHooks terminal_hooks();

// Reads a trace ("-": stdin). Throws Error with one line where the trace cannot be used.
trace::Trace load_trace(const std::string& path);

// "epilogue: warning: TEXT" on stderr.
void warn(const std::string& text);

}  // namespace epilogue::tool
