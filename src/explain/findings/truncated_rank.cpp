// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

void find_truncated(const RanksExplanation& e, std::vector<Finding>& out) {
  for (const RankSummary& r : e.ranks) {
    if (!r.is_truncated) continue;
    Finding f;
    f.severity = Severity::warning;
    f.title =
        fmt::format("the trace of rank {} ends early: its collectives are not matched", r.rank);
    f.evidence.push_back(r.path + ": what it lost is not known");
    advise(f, "record this rank again, and let the profiler finish before the process ends");
    out.push_back(std::move(f));
  }
}

}  // namespace

constinit const RanksRule kTruncatedRankRule = {.id = "truncated-rank",
                                                .says = "whose trace ends early",
                                                .said_if = [] { return std::string("it does"); },
                                                .find = find_truncated};

}  // namespace epilogue::trace
