// SPDX-License-Identifier: Apache-2.0
// What explain() says of a trace that a test made, and a finding of it by its id.
#pragma once

#include <algorithm>
#include <string_view>

#include "epilogue/trace/explain.h"
#include "epilogue/trace/links.h"
#include "trace/trace_builder.h"

namespace epilogue::trace::testing {

inline Explanation explain(const TraceBuilder& b) { return explain(b.trace, link(b.trace)); }

// Of an Explanation or a RanksExplanation; null where there is none.
template <class Explained>
const Finding* find_finding(const Explained& e, std::string_view id) {
  const auto at = std::find_if(e.findings.begin(), e.findings.end(),
                               [&](const Finding& f) { return f.id == id; });
  return at == e.findings.end() ? nullptr : &*at;
}

}  // namespace epilogue::trace::testing
