// SPDX-License-Identifier: Apache-2.0
// What the answers share: the hooks, where they are set; how a trace is read and explained.
#pragma once

#include "epilogue/trace/answer.h"
#include "epilogue/trace/explain.h"
#include "epilogue/trace/links.h"

namespace epilogue::trace {

inline void poll(const AnswerHooks& hooks) {
  if (hooks.poll) hooks.poll();
}
inline void warn(const AnswerHooks& hooks, const std::string& text) {
  if (hooks.warn) hooks.warn(text);
}

// Times of modules need frames that are events.
inline PythonFrames frames_for(bool wants_modules, PythonFrames otherwise = PythonFrames::counted) {
  return wants_modules ? PythonFrames::events : otherwise;
}

// The order of kernels of a capture; empty without one.
Result<std::optional<GraphReference>> read_capture(const std::optional<TraceInput>& input,
                                                   const AnswerHooks& hooks);
// That no graph was replayed which a capture could name.
void warn_of_capture(const std::string& path, const AnswerHooks& hooks);
// Throws Error: of a folder with so many traces none is used.
void refuse_capture_for_ranks(const std::string& folder, size_t traces);

// Of the trace without its pauses. `puts_back`: the trace has its own times again when this
// returns.
Explanation explain_without_pauses(Trace& trace, const Links& links, ExplainOptions options,
                                   bool puts_back = true);

inline bool is_part(const TraceInput& input) { return input.step || input.from_ms || input.to_ms; }
inline bool is_stdin(const TraceInput& input) { return !input.bytes && input.path == "-"; }

}  // namespace epilogue::trace
