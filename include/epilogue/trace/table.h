// SPDX-License-Identifier: Apache-2.0
// Renders key averages: torch.profiler's text table (as PyTorch 2.7.1 prints it), JSON, Markdown.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "epilogue/trace/key_averages.h"

namespace epilogue::trace {

enum class TimeUnit { kAuto, kSeconds, kMilliseconds, kMicroseconds };

// EventList.table()'s parameters and defaults.
struct TableOptions {
  std::string sort_by = {};  // "": order of appearance; else one of sort_keys(), descending
  int row_limit = 100;       // -1: all
  int max_src_column_width = 75;
  int max_name_column_width = 55;
  int max_shapes_column_width = 80;
  std::optional<std::string> header = {};
  bool top_level_events_only = false;
  TimeUnit time_unit = TimeUnit::kAuto;
};

// What sort_by accepts. cuda_*, xpu_*, privateuse1_* and kernel_* keys mean device_*.
std::span<const std::string_view> sort_keys();

// Sorts rows by `key`, descending, ties in place. Throws Error that names the keys when it is
// unknown.
void sort_rows(std::vector<Row>& rows, std::string_view key);

// The text table; "" when there are no rows. Every line ends with a newline.
std::string format_table(const KeyAverages& averages, const TableOptions& options = {});

// One JSON object: {"schema_version", "device_label", "rows": [...], "self_cpu_total_us",
// "self_device_total_us"}. Honours sort_by, row_limit (here all rows unless told otherwise) and
// top_level_events_only.
std::string table_json(const KeyAverages& averages,
                       const TableOptions& options = {.row_limit = -1});

// The text table's columns as a GitHub table.
std::string table_markdown(const KeyAverages& averages, const TableOptions& options = {});

}  // namespace epilogue::trace
