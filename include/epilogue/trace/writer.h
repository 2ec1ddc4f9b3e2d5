// SPDX-License-Identifier: Apache-2.0
// Writes a trace as Kineto does: Chrome trace JSON that Perfetto, chrome://tracing, TensorBoard,
// HTA and TraceLens read.
#pragma once

#include <string>

#include "epilogue/base/result.h"
#include "epilogue/trace/event.h"

namespace epilogue::trace {

// Writes `trace` to `path`, compressed when the path ends in ".gz". The file appears complete or
// not at all (temporary name, then rename); missing folders are made. Events are streamed, in the
// order of start time within each lane. Names with quotes, control characters or bad UTF-8 are
// escaped or repaired, never dropped. Failure: the file cannot be written.
Status write_chrome_trace(const Trace& trace, const std::string& path);

// The same document as a string (tests, small traces).
std::string chrome_trace_json(const Trace& trace, const std::string& trace_name);

}  // namespace epilogue::trace
