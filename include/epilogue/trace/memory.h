// SPDX-License-Identifier: Apache-2.0
// How much memory was in use, when, and who held it at the peak.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

struct MemoryPoint {
  int64_t ts_ns = 0;
  int64_t allocated_bytes = 0;
};

// Memory that is live at the peak, by the op that allocated it.
struct MemoryHolder {
  std::string op;  // the innermost op on the thread; "" if there was none
  int64_t allocations = 0;
  int64_t bytes = 0;
};

// The same by place in Python, of traces with stacks.
struct PythonMemoryHolder {
  // The innermost nn.Module around it, "Linear_3"; "" if there was none.
  std::string module;
  // The innermost Python function that is none of PyTorch's own, else the innermost; "" if none.
  std::string function;
  int64_t allocations = 0;
  int64_t bytes = 0;
};

// Bytes per MemoryCategory.
using CategoryBytes = std::array<int64_t, kMemoryCategories>;

// Metadata key of traces that tell categories: what was allocated before the window, as a JSON
// object of bytes by category name.
inline constexpr const char* kMemoryAtStartKey = "memory_at_start";

struct DeviceMemory {
  DeviceType type = DeviceType::cpu;
  int32_t device = -1;  // -1 for the CPU
  int64_t allocations = 0;
  int64_t frees = 0;
  int64_t out_of_memory = 0;        // failed allocations
  int64_t peak_bytes = 0;           // most that was allocated at once
  int64_t peak_ns = 0;              // when
  int64_t peak_reserved_bytes = 0;  // by the caching allocator; 0 if it keeps none
  // Without totals in the trace (2021), sums from 0 at the start of the window: true values are
  // higher by what was allocated before.
  bool is_relative = false;
  std::vector<MemoryPoint> totals;    // after each event, by time
  std::vector<MemoryHolder> at_peak;  // by bytes, the greatest first
  // The same; empty if Python frames are no events (PythonFrames::events).
  std::vector<PythonMemoryHolder> at_peak_by_python;
  // The first of these; also known if frames were read beside the events.
  std::optional<PythonMemoryHolder> largest_python;
  // Who held what, if the trace tells categories; what it does not tell is kUnknown's.
  std::vector<CategoryBytes> category_totals;  // one per point of `totals`, adding up to it
  CategoryBytes category_at_peak{};
  CategoryBytes category_peak{};  // each category's own most
  // Live at the peak, but allocated before the window, with what at_peak leaves of peak_bytes.
  // Empty if is_relative: not known.
  std::optional<int64_t> before_window_bytes;
};

// One per device that has memory events, the greatest peak first. Empty if memory was not
// recorded.
std::vector<DeviceMemory> memory_profile(const Trace& trace, const Links& links);

// Over the steps: the most that was allocated within one beyond what was at its start, of the
// device with the greatest peak. Parameters and inputs do not count. Empty without
// steps, and if memory or its totals were not recorded.
std::optional<int64_t> step_peak_bytes(const Trace& trace, const Links& links);

}  // namespace epilogue::trace

#pragma GCC visibility pop
