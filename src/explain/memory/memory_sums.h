// SPDX-License-Identifier: Apache-2.0
// Bytes allocated minus freed within any interval of a trace.
#pragma once

#include <cstdint>
#include <vector>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

struct MemoryUsage {
  int64_t cpu_bytes = 0;
  int64_t device_bytes = 0;
};

// The bytes that one record counts for: CPU, MKLDNN and IDEEP memory is the CPU's; CUDA, HIP and
// PrivateUse1 the device's; other kinds count nowhere, as in PyTorch.
MemoryUsage memory_usage(const MemoryEvent& record);

// Prefix sums over the records in time order: O(log n) per interval.
class MemorySums {
 public:
  explicit MemorySums(const std::vector<MemoryEvent>& records);

  // All records with start <= time <= end, of whatever thread; they count as covered from then on.
  MemoryUsage take(int64_t start_ns, int64_t end_ns);
  // Indices into the records, in their original order, that no take() saw. Out-of-memory records
  // are neither summed nor covered.
  std::vector<uint32_t> uncovered() const;

 private:
  std::vector<uint32_t> order_;         // record indices by time
  std::vector<int64_t> times_ns_;       // of order_
  std::vector<MemoryUsage> prefix_;     // prefix_[i]: the first i records
  std::vector<int64_t> cover_changes_;  // +1 where a covered range starts, -1 behind its end
};

}  // namespace epilogue::trace
