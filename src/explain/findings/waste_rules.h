// SPDX-License-Identifier: Apache-2.0
// How work that the method shows to be more than the result asks for becomes a finding.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "explain/findings/claims.h"
#include "explain/findings/finding.h"

namespace epilogue::trace {

inline constexpr double kWasteShown = 0.05;  // of the run; the method looks for no less

static_assert(static_cast<Confidence>(WasteProof::question) == Confidence::low &&
              static_cast<Confidence>(WasteProof::likely) == Confidence::medium &&
              static_cast<Confidence>(WasteProof::shown) == Confidence::high);

// A loop that calls the op many times says more than the op alone.
inline std::string action_of_composite(const Explanation& e, const Waste& waste) {
  for (const CallLoop& loop : e.method.loops)
    for (const std::string& op : loop.ops)
      if (waste.title.starts_with(op + " and what it calls"))
        return fmt::format("{} ({} iterations of a loop call it); {}", loop.remedy, loop.iterations,
                           waste.action);
  return waste.action;
}

template <WasteKind kind>
void find_wastes_of(const Explanation& e, std::vector<Finding>& out) {
  for (const Waste& waste : e.method.wastes) {
    if (waste.kind != kind) continue;
    Finding f;
    f.severity = Severity::warning;
    f.title = waste.title;
    f.evidence = waste.evidence;
    if (const std::string place = waste.place.text(); !place.empty())
      f.evidence.push_back("most of it" + place);
    advise(f, kind == WasteKind::composite_op ? action_of_composite(e, waste) : waste.action);
    f.cost_us = to_us(waste.ns);
    if (waste.saving_ns) f.saving_us = to_us(*waste.saving_ns);
    f.confidence = static_cast<Confidence>(waste.proof);
    for (const auto& [op, ns] : waste.op_ns) claim_op(f, op, ns);
    if (e.host && waste.op_calls > 0)
      f.claims.push_back(
          {{std::string(kCallingOpsPart)}, to_us(waste.op_calls * kDispatchNsPerOp)});
    if (e.host && waste.between_ns > 0)
      f.claims.push_back({{std::string(kBetweenOpsPart)}, to_us(waste.between_ns)});
    out.push_back(std::move(f));
  }
}

inline std::string and_share(std::string_view condition) {
  return fmt::format("{}; {} of the time or more", condition, percent_text(kWasteShown));
}

}  // namespace epilogue::trace
