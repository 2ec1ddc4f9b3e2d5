// SPDX-License-Identifier: Apache-2.0
#include "explain/sections/section.h"

#include "base/units.h"
#include "epilogue/base/error.h"

namespace epilogue::trace {

Json value_of(const Column& column, const Json& row) {
  if (column.derive) return column.derive(row);
  const Json* value = &row;
  for (std::string_view rest = column.key; !rest.empty() && !value->is_null();) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    value = &value->at(std::string(rest.substr(0, dot)));
    rest.remove_prefix(std::min(dot + 1, rest.size()));
  }
  return *value;
}

Json distribution_json(const Distribution& d) {
  return {
      {"count", d.count},          {"min_us", to_us(d.min_ns)}, {"median_us", to_us(d.median_ns)},
      {"p95_us", to_us(d.p95_ns)}, {"max_us", to_us(d.max_ns)}, {"total_us", to_us(d.total_ns)}};
}

Json side_json(const std::optional<RooflineSide>& side) {
  if (!side) return nullptr;
  return *side == RooflineSide::memory ? "memory" : "compute";
}

}  // namespace epilogue::trace
