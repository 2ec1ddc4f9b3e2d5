// SPDX-License-Identifier: Apache-2.0
// For scripts: the critical path.
#include <optional>
#include <string>

#include "explain/render/explain_json_parts.h"
#include "explain/render/json_numbers.h"

namespace epilogue::trace {

nlohmann::ordered_json critical_path_json(const std::optional<CriticalPath>& path,
                                          JsonLists& lists) {
  if (!path) return nullptr;
  const auto us = [](const std::optional<int64_t>& ns) {
    return ns ? nlohmann::ordered_json(to_us(*ns)) : nlohmann::ordered_json();
  };
  nlohmann::ordered_json kinds = nlohmann::ordered_json::object();
  for (int i = 0; i < kPathKinds; ++i) {
    const auto kind = static_cast<PathKind>(i);
    kinds[std::string(path_kind_name(kind)) + "_us"] = to_us(path->of(kind));
  }
  return {{"span_us", to_us(path->span_ns())},
          {"kinds", std::move(kinds)},
          {"stream_waits", path->stream_waits},
          {"inferred_stream_waits", path->inferred_waits},
          {"groups", lists.of("critical_path.groups", path->groups, [&](const PathGroup& g) {
             return nlohmann::ordered_json{{"kind", path_kind_name(g.kind)},
                                           {"name", g.name},
                                           {"count", g.count},
                                           {"path_us", to_us(g.path_ns)},
                                           {"total_us", to_us(g.total_ns)},
                                           {"span_if_half_us", us(g.if_half_ns)},
                                           {"span_if_none_us", us(g.if_none_ns)}};
           })}};
}

}  // namespace epilogue::trace
