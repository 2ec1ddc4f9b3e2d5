// SPDX-License-Identifier: Apache-2.0
#include "base/json_file.h"

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"

namespace epilogue {

using nlohmann::json;

json read_versioned(const std::string& path, int version, const char* key) {
  const Result<std::string> text = read_file(path);
  if (!text) return {};
  const json j = parse_json(text.value());
  if (!j.is_object() || j.value("schema_version", json()) != version) return {};
  return j.value(key, json());
}

Status write_versioned(const std::string& path, int version, const char* key, json value) {
  const json j = {{"schema_version", version}, {key, std::move(value)}};
  return write_file(path, json_text(j, 2) + "\n");
}

}  // namespace epilogue
