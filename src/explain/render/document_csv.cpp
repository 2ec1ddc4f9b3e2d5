// SPDX-License-Identifier: Apache-2.0
// Tables as RFC 4180 has them.
#include <fmt/format.h>

#include "base/text/csv_quotes.h"
#include "explain/render/document.h"

namespace epilogue::trace {
namespace {

constexpr std::string_view kLineEnd = "\r\n";

std::string quoted(const std::string& text) {
  return text.find_first_of(",\"\r\n") == std::string::npos ? text : in_csv_quotes(text);
}

struct CsvCell {
  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return fmt::format("{}", value); }
  std::string operator()(const std::string& value) const { return quoted(value); }
};

}  // namespace

std::string table_csv(const Table& table) {
  std::string out;
  bool is_first = true;
  const auto add = [&](const std::string& cell) {
    if (!is_first) out += ',';
    out += cell;
    is_first = false;
  };
  const auto end_line = [&] {
    out += kLineEnd;
    is_first = true;
  };
  for (const Table::Column& column : table.columns)
    if (!column.key.empty()) add(quoted(column.key));
  end_line();
  for (const auto& row : table.rows) {
    for (size_t c = 0; c < row.size(); ++c)
      if (!table.columns[c].key.empty()) add(std::visit(CsvCell(), row[c].value));
    end_line();
  }
  return out;
}

std::string document_csv(const Document& document) {
  if (document.csv) return document.csv();
  for (const Block& block : document.blocks)
    if (const auto* table = std::get_if<Table>(&block); table != nullptr && !table->key.empty())
      return table_csv(*table);
  return "";
}

}  // namespace epilogue::trace
