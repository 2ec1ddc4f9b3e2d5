// SPDX-License-Identifier: Apache-2.0
// "Did you mean": the names that a mistyped one may have stood for.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace epilogue {

// Letters to insert, drop, replace or swap with their neighbour, at least, to make b of a.
int edit_distance(std::string_view a, std::string_view b);

// The names that are nearest to `name`, at most `limit`, best first: those that few edits make of
// it, and those that begin with it. Empty where none is near.
std::vector<std::string> nearest(std::string_view name, std::span<const std::string> names,
                                 size_t limit = 1);

// "; did you mean A or B?", or "".
std::string did_you_mean(std::span<const std::string> names);

// "a, b or c".
std::string one_of_text(std::span<const std::string> names);

}  // namespace epilogue
