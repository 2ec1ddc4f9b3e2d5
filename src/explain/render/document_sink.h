// SPDX-License-Identifier: Apache-2.0
// Makes the document of text and Markdown of what sections show.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/units.h"
#include "explain/render/document.h"
#include "explain/sections/section.h"

namespace epilogue::trace {

inline bool is_left_aligned(Kind kind) {
  return kind == Kind::text || kind == Kind::kernel || kind == Kind::list || kind == Kind::shape;
}

// Three digits.
inline std::string bandwidth_text(double gb_s) {
  return gb_s < 999.5 ? fmt::format("{:#.3g} GB/s", gb_s) : fmt::format("{:.0f} GB/s", gb_s);
}

inline std::string cell_text(const Column& column, const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_array())
    return fmt::format("{}", fmt::join(value.get<std::vector<std::string>>(), " + "));
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    return text.empty() ? "-" : text;
  }
  switch (column.kind) {
    case Kind::us: return format_duration_ns(value.get<double>() * kNsPerUs);
    case Kind::count: return format_count(value.get<int64_t>());
    case Kind::percent: return fmt::format("{:.{}f} %", value.get<double>(), column.digits);
    case Kind::number: return fmt::format("{:.{}f}", value.get<double>(), column.digits);
    case Kind::bandwidth: return bandwidth_text(value.get<double>());
    case Kind::bytes: return format_bytes(value.get<double>());
    default: return json_text(value);
  }
}

// `top`: rows of each list; -1: all.
class DocumentSink : public SectionSink {
 public:
  explicit DocumentSink(int top) : top_(top) {}

  void head(std::string text, Where where) override {
    if (where != Where::page) document_.push_back(Heading{std::move(text)});
  }
  void note(std::string text, Where where) override {
    if (where != Where::page) document_.push_back(Paragraph{std::move(text)});
  }
  void bullets(const std::vector<Item>& items, Where where) override {
    if (where == Where::page) return;
    Bullets list;
    for (const auto& [text, below] : items) list.items.push_back({text, below});
    document_.push_back(std::move(list));
  }
  void table(const SectionTable& table) override {
    if (table.where == Where::page) return;
    Grid grid;
    std::vector<const Column*> columns;
    for (const Column& column : table.columns) {
      if (!column.is_shown || column.where == Where::page) continue;
      columns.push_back(&column);
      grid.columns.push_back({column.title, is_left_aligned(column.kind), column.width});
    }
    const size_t shown = top_ < 0 ? table.size : std::min(table.size, static_cast<size_t>(top_));
    for (size_t i = 0; i < shown; ++i) {
      const Json row = table.row(i);
      std::vector<std::string>& cells = grid.rows.emplace_back();
      for (const Column* column : columns)
        cells.push_back(cell_text(*column, value_of(*column, row)));
    }
    if (shown < table.size) grid.more = fmt::format("and {} more", table.size - shown);
    document_.push_back(std::move(grid));
  }
  void plot(std::string_view, const Json&) override {}
  int top() const override { return top_; }

  Document take() { return std::move(document_); }

 private:
  int top_;
  Document document_;
};

}  // namespace epilogue::trace
