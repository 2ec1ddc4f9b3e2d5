// SPDX-License-Identifier: Apache-2.0
// Several ranks of one run, side by side: who waits for whom, and what communication hides.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "epilogue/trace/collectives.h"
#include "epilogue/trace/explain.h"

namespace epilogue::trace {

// What a trace cannot say is empty.
struct RankSummary {
  std::string path;
  int64_t rank = 0;
  bool is_truncated = false;   // the trace ends early: what is said is of the part before
  std::optional<Bound> bound;  // empty: it ends before any device work
  int64_t span_ns = 0;
  std::optional<double> busy_pct;
  // Both are empty where the trace ends early or has no kernel.
  std::optional<int64_t> communication_ns;  // union of the collectives' kernels
  std::optional<int64_t> overlap_ns;        // of that, beside other kernels
  // For ranks that arrived later, over the matched collectives; empty where none is matched.
  std::optional<int64_t> wait_ns;
};

// Ranks `first` to `last`, both included.
struct RankRange {
  int64_t first = 0;
  int64_t last = 0;
  bool operator==(const RankRange&) const = default;
};

struct RanksExplanation {
  std::vector<RankSummary> ranks;  // in the order given
  std::optional<int64_t> world_size;
  // Of the world; where its size is not known: between the ranks that are here.
  std::vector<RankRange> missing;
  Collectives collectives;
  std::vector<Finding> findings;

  // False: a rank is missing or its trace ends early, so that CollectiveWaits are bounds.
  bool has_all_ranks() const;
  // False: RankSummary::wait_ns is at least so long, also where a kind is not matched.
  bool waits_are_whole() const { return has_all_ranks() && collectives.unmatched.empty(); }
};

RanksExplanation explain_ranks(std::span<const RankTrace> ranks);

}  // namespace epilogue::trace
