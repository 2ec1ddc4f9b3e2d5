// SPDX-License-Identifier: Apache-2.0
// Makes valid JSON of an event that is not: what writers are known to get wrong.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trace/read/import_notes.h"

namespace epilogue::trace {

// The object at the start of `text` as valid JSON; nothing when it cannot be mended. Quotes inside
// strings, control characters, bytes that are not UTF-8, backslashes that escape nothing, bare
// words, commas too many: each kind is noted once, at `offset`. Behind the object there may be
// white space and a comma.
std::optional<std::string> repair_event(std::string_view text, int64_t offset, ImportNotes& notes);

}  // namespace epilogue::trace
