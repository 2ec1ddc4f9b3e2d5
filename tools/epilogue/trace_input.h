// SPDX-License-Identifier: Apache-2.0
// What the trace commands share: which trace, and which part of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

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
// The same for one file of many: nothing, and a warning that names it, where it cannot be used.
std::optional<trace::Trace> load_trace_if_usable(const std::string& path, const TracePart& part,
                                                 bool python_functions);

// "PATH: skipped 3 of 210 events: bad-syntax (2), truncated (1); the first at byte 204", or "".
std::string skip_warning(const trace::ImportReport& report);

}  // namespace epilogue::tool
