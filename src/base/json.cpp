// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <nlohmann/json.hpp>

namespace epilogue {

using nlohmann::json;
using nlohmann::ordered_json;

json parse_json(std::string_view text) {
  return json::parse(text, nullptr, /*allow_exceptions=*/false);
}
json parse_json_or_throw(std::string_view text) { return json::parse(text); }
ordered_json parse_ordered_json(std::string_view text) { return ordered_json::parse(text); }
bool is_json(std::string_view text) { return json::accept(text); }

std::string json_text(const json& value, int indent) { return value.dump(indent); }
std::string json_text(const ordered_json& value, int indent) { return value.dump(indent); }
std::string json_text_of_names(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}
std::string json_text_of_names(const ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace epilogue
