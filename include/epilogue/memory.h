// SPDX-License-Identifier: Apache-2.0
// Memory: how much of it there is. base/memory_category.h says who holds it.
#pragma once

#include <cstdint>

#include "epilogue/base/memory_category.h"
#include "epilogue/device.h"

#pragma GCC visibility push(default)

namespace epilogue {

// The caching allocator behind every tensor. Freed blocks are kept for reuse.
struct MemoryStats {
  int64_t allocated_bytes = 0;  // live, as requested
  // The most since start or reset_peak_memory(); with several threads give or take 64 KiB for each.
  int64_t peak_allocated_bytes = 0;
  int64_t reserved_bytes = 0;      // held from the system, live or cached
  int64_t allocations = 0;         // calls since start
  int64_t system_allocations = 0;  // calls that had to ask the system
  // Packed copies of weights that compiled functions and fused MLPs hold, beside the above. One
  // copy for each weight and layout in a process, whoever uses it.
  int64_t packed_bytes = 0;
};
MemoryStats memory_stats(Device device = {});
void reset_peak_memory(Device device = {});
// Returns cached blocks to the system (on the host: those of this thread and of the shared lists).
void release_cached_memory(Device device = {});

}  // namespace epilogue

#pragma GCC visibility pop
