// SPDX-License-Identifier: Apache-2.0
// Which span of a thread a moment falls into.
#pragma once

#include <cstdint>
#include <vector>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

struct Moment {
  int32_t pid = 0;
  int64_t tid = 0;
  int64_t ts_ns = 0;
};

// For each moment the innermost of `spans` (indices of events) around it on its thread, or kNone:
// of those that hold it, the one that started last. `spans` may overlap in part.
std::vector<uint32_t> innermost_at(const Trace& trace, std::vector<uint32_t> spans,
                                   const std::vector<Moment>& moments);
// The same; `spans` are indices of `frames`.
std::vector<uint32_t> innermost_at(const std::vector<PythonFrame>& frames,
                                   std::vector<uint32_t> spans, const std::vector<Moment>& moments);

}  // namespace epilogue::trace
