// SPDX-License-Identifier: Apache-2.0
// The collective kernels of one rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "epilogue/trace/links.h"

namespace epilogue::trace {

struct CollectiveCall {
  uint32_t event = kNone;                // the kernel
  std::string name;                      // "all_reduce"
  std::optional<int64_t> bytes;          // of the rank's input
  std::optional<int64_t> message_bytes;  // the size of which bandwidths are told
  std::optional<int64_t> group_ranks;    // ranks of its process group
  std::string group_name;                // "3"
  std::string group;                     // "[0, 1, 2, 3]"; of many ranks cut, with "..."
};

// By start.
std::vector<CollectiveCall> collective_calls(const Trace& trace, const Links& links);

// "ncclDevKernel_AllReduce_Sum_f32", "nccl:all_reduce", "_allgather_base" -> "all_reduce", ...
std::string collective_name(std::string_view text);

}  // namespace epilogue::trace
