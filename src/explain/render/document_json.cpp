// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "explain/render/document.h"
#include "explain/render/json_numbers.h"

namespace epilogue::trace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDocumentSchemaVersion = 1;

Json json_of(const Value& value) {
  return std::visit(
      [](const auto& v) {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::monostate>) {
          return Json();
        } else {
          return Json(v);
        }
      },
      value);
}

Json rows_of(const Table& table) {
  Json rows = Json::array();
  for (const auto& cells : table.rows) {
    Json row = Json::object();
    for (size_t c = 0; c < cells.size(); ++c)
      if (!table.columns[c].key.empty()) row[table.columns[c].key] = json_of(cells[c].value);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::string document_json(const Document& document) {
  if (document.json) return document.json();
  Json json = {{"schema_version", kDocumentSchemaVersion}};
  for (const auto& [key, value] : document.facts) json[key] = json_of(value);
  for (const Block& block : document.blocks)
    if (const auto* table = std::get_if<Table>(&block); table != nullptr && !table->key.empty())
      json[table->key] = rows_of(*table);
  if (json.size() == 1) return "";
  return document.sorts_keys ? dump_json(nlohmann::json(json)) : dump_json(json);
}

}  // namespace epilogue::trace
