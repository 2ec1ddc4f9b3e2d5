// SPDX-License-Identifier: Apache-2.0
// How the annotations of a profiler's steps are named.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace epilogue::trace {

inline constexpr std::string_view kStepPrefix = "ProfilerStep#";

// "ProfilerStep#12" -> 12.
inline std::optional<int64_t> step_number(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  name.remove_prefix(kStepPrefix.size());
  int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && number >= 0 ? std::optional(number) : std::nullopt;
}

}  // namespace epilogue::trace
