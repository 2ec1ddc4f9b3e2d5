// SPDX-License-Identifier: Apache-2.0
// The collectives of one rank, and bandwidths as nccl-tests defines them (its
// PERFORMANCE.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/trace/links.h"
#include "epilogue/trace/ranks.h"

namespace epilogue::trace {

struct CollectiveCall {
  uint32_t event = kNone;                // the kernel; the range of a CPU's collective
  std::string name;                      // "all_reduce"
  std::optional<int64_t> bytes;          // of the rank's input
  std::optional<int64_t> message_bytes;  // the size that bandwidths are over
  std::optional<int64_t> group_ranks;    // ranks of its process group
  std::string group_name;                // "3"
  std::string group;                     // "[0, 1, 2, 3]"; of many ranks cut, with "..."
};

// By start. Of a run without a device those of CPUs ("gloo:all_reduce").
std::vector<CollectiveCall> collective_calls(const Trace& trace, const Links& links);

// "ncclDevKernel_AllReduce_Sum_f32", "nccl:all_reduce", "_allgather_base" -> "all_reduce", ...
std::string collective_name(std::string_view text);

// Sizes of one collective; empty if not recorded.
struct CollectiveSizes {
  std::optional<int64_t> in_bytes;   // of the rank's input
  std::optional<int64_t> out_bytes;  // of the rank's output
  std::optional<int64_t> ranks;      // of the group
};

// The size S of nccl-tests: all data of an all-gather and a reduce-scatter, else the rank's buffer.
// Empty if it is not recorded, or if input, output and group contradict each other.
std::optional<int64_t> message_bytes(std::string_view name, const CollectiveSizes& sizes);

// Bus bandwidth by algorithm bandwidth. Empty for what is no collective of known traffic.
std::optional<double> bus_factor(std::string_view name, int64_t ranks);

// Sums over calls of one kind.
class CollectiveRateSum {
 public:
  // A call without a size or a time does not count; one without a bus factor has no busbw.
  void add(std::optional<int64_t> bytes, std::optional<double> factor, int64_t dur_ns);
  std::optional<CollectiveRates> rates() const;

 private:
  int64_t count_ = 0;
  double bytes_ = 0;
  double bus_bytes_ = 0;
  int64_t ns_ = 0;
  bool has_factors_ = true;
};

}  // namespace epilogue::trace
