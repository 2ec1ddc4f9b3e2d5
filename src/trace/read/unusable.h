// SPDX-License-Identifier: Apache-2.0
// One line for people whose file is no trace: what it looks like instead.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/base/result.h"

namespace epilogue::trace {

// How much of a file's start not_json() wants to see.
inline constexpr size_t kHeadBytes = 64;

Failure not_json(const std::string& path, std::string_view head);
Failure no_document(const std::string& path, bool is_truncated);
// `keys`: the members of the top-level object.
Failure not_a_trace(const std::string& path, const std::vector<std::string>& keys);

// A JSON array whose elements are no events.
Failure no_events(const std::string& path);

}  // namespace epilogue::trace
