// SPDX-License-Identifier: Apache-2.0
// The JSON of safetensors, before any check of the offsets: the header, and the index of shards.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "epilogue/base/result.h"
#include "epilogue/io.h"

namespace epilogue::io {

inline constexpr std::string_view kMetadataKey = "__metadata__";
// The format's limit on the header; headers beyond it are neither read nor written.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr uint64_t kLengthBytes = 8;

// Entries in the order of the text; data_offset is left 0.
Result<SafetensorsHeader> parse_header_json(std::string_view json, std::string_view file);

// The weight_map of a model.safetensors.index.json: tensor name -> file name, not yet checked.
using WeightMap = std::map<std::string, std::string>;
Result<WeightMap> parse_index_json(std::string_view json, std::string_view file);

}  // namespace epilogue::io
