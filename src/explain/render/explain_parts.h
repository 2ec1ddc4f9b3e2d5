// SPDX-License-Identifier: Apache-2.0
// The parts of an explanation's document, one function each; a part that has nothing to say adds
// nothing.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "epilogue/trace/explain.h"
#include "explain/render/document.h"

namespace epilogue::trace {

// What a part reads and writes.
struct ExplainParts {
  const Explanation& e;
  int top;  // rows of each list
  Document document = {};

  void head(std::string text) { document.push_back(Heading{std::move(text)}); }
  void add(Grid grid) {
    limit_rows(grid, top);
    document.push_back(std::move(grid));
  }
  // What says nothing of a run without a device. From the last on.
  static void remove_columns(Grid& grid, std::initializer_list<ptrdiff_t> columns) {
    for (const ptrdiff_t column : columns) {
      grid.columns.erase(grid.columns.begin() + column);
      for (std::vector<std::string>& row : grid.rows) row.erase(row.begin() + column);
    }
  }
};

template <class T>
std::string known(const std::optional<T>& value, fmt::format_string<const T&> format) {
  return value ? fmt::format(format, *value) : "-";
}

// What shares of the peak rest on, and whether they say anything.
std::string peak_note(const HostTime& host);

inline std::string percent(double value) { return fmt::format("{:.1f} %", value); }

// Of a run without a device.
void add_host(ExplainParts& p);
void add_host_steps(ExplainParts& p);

void add_critical_path(ExplainParts& p);

void add_gemms(ExplainParts& p);
void add_rooflines(ExplainParts& p);
void add_fused(ExplainParts& p);
void add_fusions(ExplainParts& p);
void add_chains(ExplainParts& p);

void add_calls(ExplainParts& p);
void add_collectives(ExplainParts& p);
void add_compile(ExplainParts& p);
void add_device_ranges(ExplainParts& p);
void add_memory(ExplainParts& p);
void add_modules(ExplainParts& p);

}  // namespace epilogue::trace
