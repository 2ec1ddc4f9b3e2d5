// SPDX-License-Identifier: Apache-2.0
// Kernels that run several ATen ops at once, as far as the trace says so itself: those of compiled
// and fused functions of this project.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

// All executions of one kernel for one list of ops.
struct FusedKernel {
  std::string kernel;
  std::vector<std::string> ops;  // "aten::mm", ...: in their order, repeated as often as they run
  int64_t count = 0;
  int64_t total_ns = 0;
  int64_t bytes = 0;          // read and written by all executions; -1: unknown
  int64_t unfused_bytes = 0;  // what the ops would read and write one by one; -1: unknown
};

// By total time, the longest first.
std::vector<FusedKernel> fused_kernels(const Trace& trace);

// KernelArgs::fused_ops taken apart; empty for "". The views refer to the text.
std::vector<std::string_view> fused_op_names(std::string_view fused_ops);

}  // namespace epilogue::trace
