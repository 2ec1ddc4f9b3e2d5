// SPDX-License-Identifier: Apache-2.0
// What the answers share: the hooks, where they are set.
#pragma once

#include "epilogue/trace/answer.h"

namespace epilogue::trace {

inline void poll(const AnswerHooks& hooks) {
  if (hooks.poll) hooks.poll();
}
inline void warn(const AnswerHooks& hooks, const std::string& text) {
  if (hooks.warn) hooks.warn(text);
}

inline bool is_part(const TraceInput& input) { return input.step || input.from_ms || input.to_ms; }
inline bool is_stdin(const TraceInput& input) { return !input.bytes && input.path == "-"; }

// Reads the whole trace; no cut, no warning.
Result<Trace> read_whole(const TraceInput& input, bool python_functions, const AnswerHooks& hooks);

}  // namespace epilogue::trace
