// SPDX-License-Identifier: Apache-2.0
// The key-averages table for spreadsheets.
#include <fmt/format.h>

#include "base/units.h"
#include "explain/render/document.h"
#include "explain/render/table_rows.h"

namespace epilogue::trace {
namespace {

Table csv_columns(const KeyAverages& averages) {
  Table table{.key = "rows"};
  for (const char* key : {"name", "count", "self_cpu_us", "cpu_total_us", "cpu_avg_us",
                          "self_device_us", "device_total_us", "device_avg_us", "flops",
                          "device_type", "is_user_annotation", "is_async"})
    table.columns.push_back({.key = key});
  if (averages.profile_memory)
    for (const char* key : {"cpu_memory_bytes", "self_cpu_memory_bytes", "device_memory_bytes",
                            "self_device_memory_bytes"})
      table.columns.push_back({.key = key});
  for (const char* key : {"input_shapes", "overload_name", "stack"})
    table.columns.push_back({.key = key});
  return table;
}

}  // namespace

std::string key_averages_csv(const KeyAverages& averages, const TableOptions& options) {
  Table table = csv_columns(averages);
  for (const Row& row : shown_rows(averages, options)) {
    std::vector<Value> values = {row.key,
                                 row.count,
                                 to_us(row.self_cpu_time_total_ns),
                                 to_us(row.cpu_time_total_ns),
                                 row.cpu_time_avg_us(),
                                 to_us(row.self_device_time_total_ns),
                                 to_us(row.device_time_total_ns),
                                 row.device_time_avg_us(),
                                 static_cast<int64_t>(row.flops),
                                 row.device == RowDevice::cpu ? "CPU" : averages.device_label,
                                 row.is_user_annotation,
                                 row.is_async};
    if (averages.profile_memory)
      values.insert(values.end(), {row.cpu_memory_bytes, row.self_cpu_memory_bytes,
                                   row.device_memory_bytes, row.self_device_memory_bytes});
    values.insert(values.end(), {row.input_shapes, row.overload_name,
                                 fmt::format("{}", fmt::join(row.stack, "\n"))});
    std::vector<Table::Cell>& cells = table.rows.emplace_back();
    for (Value& value : values) cells.push_back({.value = std::move(value)});
  }
  return table_csv(table);
}

}  // namespace epilogue::trace
