// SPDX-License-Identifier: Apache-2.0
#include "explain/index/trace_metadata.h"

#include <algorithm>
#include <charconv>

namespace epilogue::trace {

std::optional<std::string_view> find_metadata(const Trace& trace, std::string_view key) {
  const auto at = std::find_if(trace.metadata.begin(), trace.metadata.end(),
                               [&](const auto& entry) { return entry.first == key; });
  if (at == trace.metadata.end()) return std::nullopt;
  return std::string_view(at->second);
}

std::optional<double> metadata_number(const Trace& trace, std::string_view key) {
  const std::optional<std::string_view> json = find_metadata(trace, key);
  if (!json) return std::nullopt;
  double value = 0;
  const char* const begin = json->data();
  const char* const end = begin + json->size();
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || stop != end || !(value > 0)) return std::nullopt;
  return value;
}

bool is_own_trace(const Trace& trace) { return trace.device_label == "KERNEL"; }

}  // namespace epilogue::trace
