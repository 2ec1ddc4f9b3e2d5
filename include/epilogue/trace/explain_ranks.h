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

struct RankSummary {
  std::string path;
  int64_t rank = 0;
  Bound bound = Bound::kCpuOnly;
  int64_t span_ns = 0;
  std::optional<double> busy_pct;
  int64_t communication_ns = 0;  // union of the collectives' kernels
  int64_t overlap_ns = 0;        // of that, beside other kernels
  int64_t wait_ns = 0;           // for ranks that arrived later, over all matched collectives
};

struct RanksExplanation {
  std::vector<RankSummary> ranks;  // in the order given
  Collectives collectives;
  std::vector<Finding> findings;
};

// Why the traces are not the ranks of one run, in one line that names files; empty where they are.
// They are where each is of another rank, by distributedInfo (and of one world size) or by a file
// name such as "rank7.json"; where none says so, if all ran the same ops at the same time.
std::string why_not_ranks(std::span<const RankTrace> traces);

RanksExplanation explain_ranks(std::span<const RankTrace> ranks);

}  // namespace epilogue::trace
