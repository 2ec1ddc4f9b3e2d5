// SPDX-License-Identifier: Apache-2.0
// A written trace, parsed by a strict parser.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/trace/file.h"

namespace epilogue::trace::testing {

using Json = nlohmann::ordered_json;

// Throws when the document is not valid JSON.
inline Json written(const Trace& trace) {
  return Json::parse(chrome_trace_json(trace, "out/trace.json"));
}

// The events with that phase and, unless empty, category and name.
inline std::vector<Json> select(const Json& document, std::string_view phase,
                                std::string_view category = "", std::string_view name = "") {
  std::vector<Json> found;
  for (const Json& event : document.at("traceEvents")) {
    if (event.at("ph") != phase) continue;
    if (!category.empty() && event.value("cat", "") != category) continue;
    if (!name.empty() && event.at("name") != name) continue;
    found.push_back(event);
  }
  return found;
}

inline std::vector<std::string> keys(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [key, value] : object.items()) names.push_back(key);
  return names;
}

}  // namespace epilogue::trace::testing
