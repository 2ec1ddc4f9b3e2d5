// SPDX-License-Identifier: Apache-2.0
// Nesting: the ops of a trace as trees, their own time, the span around a moment.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

namespace epilogue::trace {

// The ops of a trace as trees.
class OpTree {
 public:
  OpTree(const Trace& trace, const Links& links);

  // Ops without an op around them, by start.
  const std::vector<uint32_t>& roots() const { return roots_; }
  // The ops that an op calls, by start.
  std::span<const uint32_t> children(uint32_t op) const {
    return std::span(children_).subspan(first_child_[op], first_child_[op + 1] - first_child_[op]);
  }

 private:
  std::vector<uint32_t> roots_;
  std::vector<uint32_t> children_;
  std::vector<uint32_t> first_child_;  // by event, in children_
};

// Time that an op spends itself, not in the ops it calls. By event; 0 for what is no op. Launch
// calls count as the time of the op that makes them.
std::vector<int64_t> self_times_ns(const Trace& trace, const Links& links);

// Frames of an nn.Module's forward are named "nn.Module: Linear_3".
inline constexpr std::string_view kModulePrefix = "nn.Module: ";

// A moment of a thread.
struct Moment {
  int32_t pid = 0;
  int64_t tid = 0;
  int64_t ts_ns = 0;
};

// For each moment the innermost of `spans` (indices of events) around it on its thread, or kNone:
// of those that hold it, the one that started last. `spans` may overlap in part.
std::vector<uint32_t> innermost_at(const Trace& trace, const std::vector<uint32_t>& spans,
                                   const std::vector<Moment>& moments);
// The same; `spans` are indices of `frames`.
std::vector<uint32_t> innermost_at(const std::vector<PythonFrame>& frames,
                                   const std::vector<uint32_t>& spans,
                                   const std::vector<Moment>& moments);

// The step that runs at that time, as a position in Links::steps; kNone between steps. Links::step
// knows it of ops, launches and device work, this of any event.
uint32_t step_at(const Trace& trace, const Links& links, int64_t ts_ns);

}  // namespace epilogue::trace
