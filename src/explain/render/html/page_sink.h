// SPDX-License-Identifier: Apache-2.0
// Describes what sections show to the page's scripts.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "explain/render/html/page_data.h"
#include "explain/sections/section.h"

namespace epilogue::trace {

// Sections are [{"id", "title", "blocks": [...]}]. A block is
// {"head"},
// {"note"}, {"bullets"}, {"plot", "what"} or a table {"caption", "list", "columns", "sort_by"}; its
// rows lie at the path `list` of the explanation. A column has the path of its value in a row, or
// the values of all rows.
class PageSink : public SectionSink {
 public:
  void begin(std::string_view id, std::string_view title) {
    sections_.push_back({{"id", id}, {"title", title}, {"blocks", Json::array()}});
  }
  void head(std::string text, Where where) override {
    if (where != Where::text) add({{"head", std::move(text)}});
  }
  void note(std::string text, Where where) override {
    if (where != Where::text) add({{"note", std::move(text)}});
  }
  void bullets(const std::vector<Item>& items, Where where) override {
    if (where == Where::text) return;
    Json lines = Json::array();
    for (const Item& item : items) lines.push_back(item.first);
    add({{"bullets", std::move(lines)}});
  }
  void table(const SectionTable& table) override {
    if (table.where == Where::text || table.list.empty() || table.size == 0) return;
    Json columns = Json::array();
    for (const Column& column : table.columns)
      if (column.is_shown && column.where != Where::text)
        columns.push_back(column_json(column, table));
    add({{"caption", table.caption},
         {"list", table.list},
         {"columns", std::move(columns)},
         {"sort_by", table.sort_by}});
  }
  void plot(std::string_view name, const Json& what) override {
    add({{"plot", name}, {"what", what}});
  }
  int top() const override { return kPageLines; }

  // Sections that gave nothing are left out.
  Json take() {
    Json shown = Json::array();
    for (Json& section : sections_)
      if (!section["blocks"].empty()) shown.push_back(std::move(section));
    return shown;
  }

 private:
  static constexpr int kPageLines = 10;

  static Json column_json(const Column& column, const SectionTable& table) {
    Json json = {{"title", column.title},
                 {"kind", kKindNames[static_cast<size_t>(column.kind)]},
                 {"note", column.note},
                 {"key", column.key}};
    if (!column.derive) return json;
    Json& values = json["values"] = Json::array();
    for (size_t i = 0; i < std::min(table.size, kMaxPageRows); ++i)
      values.push_back(column.derive(table.row(i)));
    return json;
  }
  void add(Json block) { sections_.back()["blocks"].push_back(std::move(block)); }

  std::vector<Json> sections_;
};

}  // namespace epilogue::trace
