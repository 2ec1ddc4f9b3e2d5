// SPDX-License-Identifier: Apache-2.0
#include "explain/render/table_rows.h"

#include <algorithm>
#include <array>

#include "epilogue/base/error.h"

namespace epilogue::trace {
namespace {

using Before = bool (*)(const Row&, const Row&);

struct SortKey {
  std::string_view name;
  Before before;
};

template <auto value>
constexpr Before descending() {
  return [](const Row& a, const Row& b) { return (a.*value) > (b.*value); };
}
template <auto method>
constexpr Before descending_result() {
  return [](const Row& a, const Row& b) { return (a.*method)() > (b.*method)(); };
}

// torch.profiler sorts by attribute name; these are the attributes that make sense.
constexpr std::array kSortKeys = {
    SortKey{"cpu_time", descending_result<&Row::cpu_time_avg_us>()},
    SortKey{"device_time", descending_result<&Row::device_time_avg_us>()},
    SortKey{"cpu_time_total", descending<&Row::cpu_time_total_ns>()},
    SortKey{"device_time_total", descending<&Row::device_time_total_ns>()},
    SortKey{"self_cpu_time_total", descending<&Row::self_cpu_time_total_ns>()},
    SortKey{"self_device_time_total", descending<&Row::self_device_time_total_ns>()},
    SortKey{"cpu_memory_usage", descending<&Row::cpu_memory_bytes>()},
    SortKey{"device_memory_usage", descending<&Row::device_memory_bytes>()},
    SortKey{"self_cpu_memory_usage", descending<&Row::self_cpu_memory_bytes>()},
    SortKey{"self_device_memory_usage", descending<&Row::self_device_memory_bytes>()},
    SortKey{"count", descending<&Row::count>()},
    SortKey{"flops", descending<&Row::flops>()},
    SortKey{"key", descending<&Row::key>()},
};

constexpr auto kSortKeyNames = [] {
  std::array<std::string_view, kSortKeys.size()> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kSortKeys[i].name;
  return names;
}();

// "self_cuda_time_total" -> "self_device_time_total".
std::string device_neutral(std::string key) {
  for (const std::string_view device : {"cuda", "xpu", "privateuse1", "kernel"}) {
    for (size_t at = key.find(device); at != std::string::npos; at = key.find(device))
      key.replace(at, device.size(), "device");
  }
  return key;
}

}  // namespace

std::span<const std::string_view> sort_keys() { return kSortKeyNames; }

void sort_rows(std::vector<Row>& rows, std::string_view key) {
  const std::string name = device_neutral(std::string(key));
  const auto found = std::find_if(kSortKeys.begin(), kSortKeys.end(),
                                  [&](const SortKey& k) { return k.name == name; });
  if (found == kSortKeys.end()) {
    std::string message = "[table] expected a sort key of";
    for (const std::string_view known : kSortKeyNames) message.append(" ").append(known);
    throw Error(message + " (cuda, xpu and kernel mean device), got \"" + std::string(key) + "\"");
  }
  std::stable_sort(rows.begin(), rows.end(), found->before);
}

std::vector<Row> shown_rows(const KeyAverages& averages, const TableOptions& options) {
  std::vector<Row> rows = averages.rows;
  if (!options.sort_by.empty()) sort_rows(rows, options.sort_by);
  if (options.top_level_events_only)
    std::erase_if(rows, [](const Row& r) { return !r.is_top_level; });
  if (options.row_limit >= 0 && rows.size() > static_cast<size_t>(options.row_limit))
    rows.resize(static_cast<size_t>(options.row_limit));
  return rows;
}

}  // namespace epilogue::trace
