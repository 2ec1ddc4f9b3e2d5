// SPDX-License-Identifier: Apache-2.0
// Texts of JSON. The parser and the writer of the library are large templates: they are compiled
// once, in json.cpp.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace epilogue {

// If the text is no JSON, the value is_discarded().
nlohmann::json parse_json(std::string_view text);
// The same, but it throws nlohmann::json::parse_error.
nlohmann::json parse_json_or_throw(std::string_view text);
// The same of a text that the program wrote itself: objects keep the order of their keys, an error
// is thrown.
nlohmann::ordered_json parse_ordered_json(std::string_view text);
bool is_json(std::string_view text);

// An indent of -1 gives one line. Text that is not UTF-8 throws.
std::string json_text(const nlohmann::json& value, int indent = -1);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);
// The same of names that come from files: bytes that are not UTF-8 are replaced.
std::string json_text_of_names(const nlohmann::json& value, int indent = -1);
std::string json_text_of_names(const nlohmann::ordered_json& value, int indent = -1);

}  // namespace epilogue
