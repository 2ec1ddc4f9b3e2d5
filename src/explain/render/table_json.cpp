// SPDX-License-Identifier: Apache-2.0
// The table for scripts.
#include "explain/render/json_numbers.h"
#include "explain/render/table_rows.h"

namespace epilogue::trace {
namespace {

nlohmann::ordered_json row_json(const Row& row, const KeyAverages& averages) {
  nlohmann::ordered_json json = {
      {"name", row.key},
      {"count", row.count},
      {"self_cpu_us", to_us(row.self_cpu_time_total_ns)},
      {"cpu_total_us", to_us(row.cpu_time_total_ns)},
      {"cpu_avg_us", row.cpu_time_avg_us()},
      {"self_device_us", to_us(row.self_device_time_total_ns)},
      {"device_total_us", to_us(row.device_time_total_ns)},
      {"device_avg_us", row.device_time_avg_us()},
      {"flops", row.flops},
      {"device_type", row.device == RowDevice::cpu ? "CPU" : averages.device_label},
      {"is_user_annotation", row.is_user_annotation},
      {"is_async", row.is_async}};
  if (averages.profile_memory) {
    json["cpu_memory_bytes"] = row.cpu_memory_bytes;
    json["self_cpu_memory_bytes"] = row.self_cpu_memory_bytes;
    json["device_memory_bytes"] = row.device_memory_bytes;
    json["self_device_memory_bytes"] = row.self_device_memory_bytes;
  }
  if (averages.has_captured_ops) {
    json["captured_count"] = row.captured_count;
    json["captured_self_device_us"] = to_us(row.captured_self_device_ns);
  }
  if (!row.input_shapes.empty()) json["input_shapes"] = row.input_shapes;
  if (!row.overload_name.empty()) json["overload_name"] = row.overload_name;
  if (!row.stack.empty()) json["stack"] = row.stack;
  return json;
}

}  // namespace

nlohmann::ordered_json averages_json(const KeyAverages& averages, std::span<const Row> shown) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Row& row : shown) rows.push_back(row_json(row, averages));
  return {{"schema_version", kJsonSchemaVersion},
          {"device_label", averages.device_label},
          {"rows", std::move(rows)},
          {"self_cpu_total_us", to_us(averages.self_cpu_time_total_ns())},
          {"self_device_total_us", to_us(averages.self_device_time_total_ns())}};
}

std::string table_json(const KeyAverages& averages, const TableOptions& options) {
  return dump_json(averages_json(averages, shown_rows(averages, options)));
}

}  // namespace epilogue::trace
