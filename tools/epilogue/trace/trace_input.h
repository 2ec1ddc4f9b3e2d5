// SPDX-License-Identifier: Apache-2.0
// What the trace commands share: which trace, and which part of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "epilogue/base/result.h"
#include "epilogue/trace/event.h"

namespace CLI {
class App;
}

namespace epilogue::tool {

// The part of a trace to look at.
struct TracePart {
  std::optional<int64_t> step;
  std::optional<double> from_ms;
  std::optional<double> to_ms;
};
// Adds --step, --from and --to.
void add_trace_part(CLI::App& app, TracePart& part);

// Reads a trace ("-": stdin) and cuts it. Shows progress on a terminal and warns of what had to be
// skipped, both on stderr. Throws Error with one line where the trace cannot be used.
trace::Trace load_trace(const std::string& path, const TracePart& part = {},
                        bool python_functions = false);
// The same; a Failure where the trace cannot be used (FailureCode::not_a_trace: see read_trace).
Result<trace::Trace> try_load_trace(const std::string& path, const TracePart& part = {},
                                    bool python_functions = false);

// "epilogue: warning: TEXT" on stderr.
void warn(const std::string& text);

}  // namespace epilogue::tool
