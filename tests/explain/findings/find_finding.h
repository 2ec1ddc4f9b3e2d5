// SPDX-License-Identifier: Apache-2.0
// What explain() says of a trace that a test made, and a finding of it by its id.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
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

// The same, of a test that cannot go on without it: where there is none, the test fails with what
// is thrown.
template <class Explained>
Finding finding_of(const Explained& e, std::string_view id) {
  const Finding* found = find_finding(e, id);
  if (found == nullptr) throw std::runtime_error("expected a finding " + std::string(id));
  return *found;
}

// Whether a line of the evidence is this one.
inline bool has_line(const Finding& f, std::string_view line) {
  return std::ranges::find(f.evidence, line) != f.evidence.end();
}

}  // namespace epilogue::trace::testing
