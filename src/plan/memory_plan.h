// SPDX-License-Identifier: Apache-2.0
// Where intermediate values lie: one arena, shared by values that do not live at the same time.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace epilogue::plan {

inline constexpr int64_t kNotInArena = -1;

struct MemoryPlan {
  std::vector<int64_t> offsets;  // of each value, in bytes; kNotInArena: leaves, results, views
  int64_t arena_bytes = 0;
  int64_t unshared_bytes = 0;  // what the values would take one beside the other
};

// The value whose memory `value` is: itself, or what it is a view of.
int memory_root(const graph::Graph& graph, const graph::Uses& uses, int value);

// `bytes`: of each value. Of the graph's outputs the first `handed_out` have memory of their own;
// the others stay in the arena, where they live to the end.
MemoryPlan plan_memory(const graph::Graph& graph, const std::vector<int64_t>& bytes,
                       size_t handed_out = SIZE_MAX);

}  // namespace epilogue::plan
