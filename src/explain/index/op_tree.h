// SPDX-License-Identifier: Apache-2.0
// The ops of a trace as trees.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "epilogue/trace/links.h"

namespace epilogue::trace {

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

}  // namespace epilogue::trace
