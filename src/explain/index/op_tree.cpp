// SPDX-License-Identifier: Apache-2.0
#include "explain/index/op_tree.h"

#include <algorithm>

namespace epilogue::trace {

OpTree::OpTree(const Trace& trace, const Links& links) {
  std::vector<uint32_t> ops;
  for (uint32_t i = 0; i < trace.events.size(); ++i)
    if (trace.events[i].category == Category::cpu_op) ops.push_back(i);
  std::sort(ops.begin(), ops.end(), [&](uint32_t a, uint32_t b) {
    const int64_t x = trace.events[a].ts_ns;
    const int64_t y = trace.events[b].ts_ns;
    return x != y ? x < y : a < b;
  });

  first_child_.assign(trace.events.size() + 2, 0);
  for (const uint32_t i : ops)
    if (links.parent[i] != kNone) ++first_child_[links.parent[i] + 2];
  for (size_t i = 2; i < first_child_.size(); ++i) first_child_[i] += first_child_[i - 1];
  children_.resize(ops.size());
  for (const uint32_t i : ops) {
    if (links.parent[i] == kNone) {
      roots_.push_back(i);
    } else {
      children_[first_child_[links.parent[i] + 1]++] = i;
    }
  }
}

}  // namespace epilogue::trace
