// SPDX-License-Identifier: Apache-2.0
// Differences between small traces, whose sum is always closed.
#pragma once

#include "epilogue/trace/diff.h"
#include "support/test.h"
#include "trace/trace_builder.h"

namespace epilogue::trace::testing {

inline TraceDiff diff(const TraceBuilder& a, const TraceBuilder& b) {
  TraceDiff d = diff_traces(a.trace, link(a.trace), b.trace, link(b.trace), {.min_part_pct = 0});
  int64_t sum = 0;
  for (const DiffPart& part : d.parts) sum += part.delta_ns();
  EXPECT_EQ(sum, d.wall_ns[1] - d.wall_ns[0]) << "the parts do not add up";
  return d;
}

inline const DiffPart* find_part(const TraceDiff& d, std::string_view what) {
  const auto at = std::find_if(d.parts.begin(), d.parts.end(),
                               [&](const DiffPart& p) { return p.what.starts_with(what); });
  return at == d.parts.end() ? nullptr : &*at;
}

}  // namespace epilogue::trace::testing
