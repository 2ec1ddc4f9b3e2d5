// SPDX-License-Identifier: Apache-2.0
// A section of the answer, described once: its rows for scripts, and the columns, notes and plots
// that people see of them. Text, Markdown and the page draw what `show` gives to a sink; JSON is
// what `add_json` adds. A section is one file of this folder and its lines in index.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "epilogue/trace/explain.h"

namespace epilogue::trace {

using Json = nlohmann::ordered_json;

// --- For people ---------------------------------------------------------------------------------

// The unit or meaning of a column's values: each renderer formats by it. null is "-".
enum class Kind : uint8_t {
  text,        // as it is, left-aligned
  kernel,      // a kernel's name; the page shows what it says
  list,        // of names: "a + b"
  shape,       // "2 x 64 x 32"
  cell,        // text among numbers, right-aligned
  us,          // a duration
  count,       // a whole number
  percent,     // with Column::digits
  number,      // with Column::digits; a string in its place is shown as it is
  bandwidth,   // GB/s with three digits and the unit
  bytes,       // a size
  wall_parts,  // the division of wall time; the page draws a bar
};
inline constexpr std::string_view kKindNames[] = {"text",   "kernel",    "list",  "shape",
                                                  "cell",   "us",        "count", "percent",
                                                  "number", "bandwidth", "bytes", "wall_parts"};

enum class Where : uint8_t { all, text, page };  // text: and Markdown

// A column: title, and the key of its value in the row ("time.median_us") or how it is derived.
struct Column {
  using Derive = std::function<Json(const Json& row)>;
  Column(Kind its_kind, std::string its_title, std::string its_key)
      : kind(its_kind), title(std::move(its_title)), key(std::move(its_key)) {}
  Column(Kind its_kind, std::string its_title, Derive its_derive)
      : kind(its_kind), title(std::move(its_title)), derive(std::move(its_derive)) {}

  Kind kind;
  std::string title;
  std::string key;  // "": derived
  Derive derive;
  Where where = Where::all;
  int digits = 1;     // in text
  size_t width = 60;  // in text: longer cells are cut
  std::string note;   // what the title does not say
  bool is_shown = true;

  Column page() && { return std::move(*this).at(Where::page); }
  Column text() && { return std::move(*this).at(Where::text); }
  Column at(Where w) && { return where = w, std::move(*this); }
  Column wide(size_t w) && { return width = w, std::move(*this); }
  Column places(int n) && { return digits = n, std::move(*this); }
  Column hint(std::string more) && { return note = std::move(more), std::move(*this); }
  Column when(bool shown) && { return is_shown = shown, std::move(*this); }
};

struct SectionTable {
  std::string caption;  // on the page
  std::string list;     // path of the rows in the JSON; "": rows are for text alone
  size_t size = 0;
  std::function<Json(size_t)> row;  // as in the JSON
  std::vector<Column> columns;
  std::string sort_by = {};  // key of the column by which the page sorts; "": as they come
  Where where = Where::all;
};

// Takes what a section shows, in its order.
class SectionSink {
 public:
  virtual ~SectionSink() = default;
  // The first of a section is its title on the page, others stand below it.
  virtual void head(std::string text, Where where = Where::all) = 0;
  virtual void note(std::string text, Where where = Where::all) = 0;
  // Lines with lines below them.
  using Item = std::pair<std::string, std::vector<std::string>>;
  virtual void bullets(const std::vector<Item>& items, Where where = Where::all) = 0;
  virtual void table(const SectionTable& table) = 0;
  // A drawing that the page has by this name, and what it draws.
  virtual void plot(std::string_view name, const Json& what) = 0;
  void page_table(SectionTable table) {
    table.where = Where::page;
    this->table(table);
  }
  // How many lines a list has; -1: all.
  virtual int top() const = 0;
};

// The value of a column, null if it is not known. Precondition: the row has the column's key.
Json value_of(const Column& column, const Json& row);

// --- For scripts --------------------------------------------------------------------------------

// null where the value is not known.
template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

// A list of objects, one per element.
template <class List, class F>
Json array_of(const List& list, F&& make) {
  Json array = Json::array();
  for (const auto& element : list) array.push_back(make(element));
  return array;
}

// The same for lists that grow with the trace: the first `limit` elements. The number of those cut
// is kept under the list's path.
class JsonLists {
 public:
  explicit JsonLists(size_t limit) : limit_(limit) {}

  template <class List, class F>
  Json of(const std::string& path, const List& list, F&& make) {
    if (list.size() > limit_) left_out_[path] = list.size() - limit_;
    return array_of(std::span(list).first(std::min(limit_, list.size())), make);
  }
  Json left_out() && { return std::move(left_out_); }

 private:
  size_t limit_;
  Json left_out_ = Json::object();
};

Json distribution_json(const Distribution& d);
Json finding_json(const Finding& finding);
// The evidence, then what it costs and how sure that is, then what to do.
std::vector<std::string> finding_details(const Finding& finding, double span_us);
Json parts_json(const Verdict& verdict);
Json side_json(const std::optional<RooflineSide>& side);
Json collectives_json(const RankCollectives& rank);  // of one rank
Json shape_text(const Json& shape);                  // of {m, n, k, batch}: "2 x 64 x 64 x 32"

template <class List, class F>
SectionTable table_of(std::string caption, std::string path, const List& list, F make,
                      std::vector<Column> columns, std::string sort_by = {}) {
  SectionTable table = {.caption = std::move(caption),
                        .list = std::move(path),
                        .size = list.size(),
                        .columns = std::move(columns),
                        .sort_by = std::move(sort_by)};
  table.row = [&list, make](size_t i) { return Json(make(list[i])); };
  return table;
}

// Bandwidths of collectives: what they mean.
std::string bandwidth_note(bool has_sizes, std::string_view time);
// What shares of the peak rest on, and whether they say anything.
std::string peak_note(const HostTime& host);

// --- The index ----------------------------------------------------------------------------------

struct Section {
  std::string_view id;     // the page's anchor
  std::string_view title;  // in the page's contents
  // Adds its keys to the explanation; null: it has none of its own.
  void (*add_json)(const Explanation& e, Json& json, JsonLists& lists) = nullptr;
  // Gives nothing if there is nothing to show; null: for scripts alone.
  void (*show)(const Explanation& e, SectionSink& sink) = nullptr;
};

// In the order of text and page, and in the order of JSON's keys.
std::span<const Section* const> shown_sections();
std::span<const Section* const> json_sections();

}  // namespace epilogue::trace
