// SPDX-License-Identifier: Apache-2.0
#include "explain/memory/memory_sums.h"

#include <algorithm>

namespace epilogue::trace {

MemoryUsage memory_usage(const MemoryEvent& record) {
  switch (record.device_type) {
    case DeviceType::cpu:
    case DeviceType::mkldnn:
    case DeviceType::ideep: return {record.bytes, 0};
    case DeviceType::cuda:
    case DeviceType::hip:
    case DeviceType::private_use1: return {0, record.bytes};
    default: return {};
  }
}

MemorySums::MemorySums(const std::vector<MemoryEvent>& records) {
  for (uint32_t i = 0; i < records.size(); ++i)
    if (!records[i].out_of_memory) order_.push_back(i);
  std::stable_sort(order_.begin(), order_.end(),
                   [&](uint32_t a, uint32_t b) { return records[a].ts_ns < records[b].ts_ns; });
  prefix_.resize(order_.size() + 1);
  cover_changes_.resize(order_.size() + 1);
  for (size_t i = 0; i < order_.size(); ++i) {
    const MemoryUsage one = memory_usage(records[order_[i]]);
    times_ns_.push_back(records[order_[i]].ts_ns);
    prefix_[i + 1] = {prefix_[i].cpu_bytes + one.cpu_bytes,
                      prefix_[i].device_bytes + one.device_bytes};
  }
}

MemoryUsage MemorySums::take(int64_t start_ns, int64_t end_ns) {
  const auto low = std::lower_bound(times_ns_.begin(), times_ns_.end(), start_ns);
  const auto high = std::upper_bound(low, times_ns_.end(), end_ns);
  const auto first = static_cast<size_t>(low - times_ns_.begin());
  const auto last = static_cast<size_t>(high - times_ns_.begin());
  ++cover_changes_[first];
  --cover_changes_[last];
  return {prefix_[last].cpu_bytes - prefix_[first].cpu_bytes,
          prefix_[last].device_bytes - prefix_[first].device_bytes};
}

std::vector<uint32_t> MemorySums::uncovered() const {
  std::vector<uint32_t> records;
  int64_t depth = 0;
  for (size_t i = 0; i < order_.size(); ++i) {
    depth += cover_changes_[i];
    if (depth == 0) records.push_back(order_[i]);
  }
  std::sort(records.begin(), records.end());
  return records;
}

}  // namespace epilogue::trace
