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
  uint32_t event = kNone;  // the kernel
  std::string name;        // "all_reduce"
  std::optional<int64_t> bytes;
};

// By start.
std::vector<CollectiveCall> collective_calls(const Trace& trace, const Links& links);

// "ncclDevKernel_AllReduce_Sum_f32", "nccl:all_reduce", "_allgather_base" -> "all_reduce", ...
std::string collective_name(std::string_view text);

}  // namespace epilogue::trace
