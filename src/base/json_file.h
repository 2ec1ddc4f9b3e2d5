// SPDX-License-Identifier: Apache-2.0
// Files of one JSON value: {"schema_version": V, KEY: value}.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "epilogue/base/result.h"

namespace epilogue {

// The value; null where the file cannot be read, is no JSON or of another version.
nlohmann::json read_versioned(const std::string& path, int version, const char* key);
// Writes to a temporary name, then renames.
Status write_versioned(const std::string& path, int version, const char* key, nlohmann::json value);

}  // namespace epilogue
