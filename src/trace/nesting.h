// SPDX-License-Identifier: Apache-2.0
// Which span encloses which, on one lane.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
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

// Nests spans one by one, and holds those alone that are open. Precondition: as nest().
class LaneNester {
 public:
  LaneNester() = default;
  LaneNester(const LaneNester&) = delete;  // open_ points into open_by_lane_
  LaneNester& operator=(const LaneNester&) = delete;

  // The parent of a span that goes by the number `index`, or kNone.
  uint32_t add(uint32_t index, const LaneSpan& span);

 private:
  using Lane = std::pair<int64_t, int64_t>;
  struct Open {
    uint32_t index;
    int64_t end_ns;
  };
  std::map<Lane, std::vector<Open>> open_by_lane_;
  Lane lane_;
  std::vector<Open>* open_ = nullptr;  // of lane_: neighbours mostly share it
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
