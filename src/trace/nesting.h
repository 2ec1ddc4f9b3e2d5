// SPDX-License-Identifier: Apache-2.0
// Which span encloses which, on one lane.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

// A span of a lane. Lanes are compared by both numbers.
struct LaneSpan {
  int64_t pid = 0;
  int64_t tid = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

// The parent of each span: the innermost one of the same lane that contains it, or kNone. As in
// PyTorch, spans that overlap in part are no parents of each other. Precondition: sorted by start,
// longer ones first among equal starts, parents first among equal spans (event_order).
std::vector<uint32_t> nest(std::span<const LaneSpan> spans);

// Indices of the events by start, longer first; among equal spans annotations come before ops, ops
// before launch calls, those before device work, and earlier ops (by Ev Idx, else by position)
// before later ones: parents precede children even where the clock could not tell them apart.
std::vector<uint32_t> event_order(const Trace& trace);

}  // namespace epilogue::trace
