// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

void find_unmatched(const RanksExplanation& e, std::vector<Finding>& out) {
  for (const std::string& name : e.collectives.unmatched) {
    Finding f;
    f.severity = Severity::warning;
    f.title = fmt::format(
        "how long ranks wait in {} is unknown: not all ranks ran it equally often", name);
    for (size_t i = 0; i < e.ranks.size(); ++i) {
      if (e.ranks[i].is_truncated || name.ends_with(']')) continue;  // of a part of the ranks
      const std::vector<CollectiveStats>& kinds = e.collectives.ranks[i].kinds;
      const auto kind = std::find_if(kinds.begin(), kinds.end(),
                                     [&](const CollectiveStats& c) { return c.name == name; });
      f.evidence.push_back(
          fmt::format("rank {}: {}", e.ranks[i].rank, kind == kinds.end() ? 0 : kind->time.count));
    }
    advise(f, "record the same steps on all ranks");
    out.push_back(std::move(f));
  }
}

}  // namespace

constinit const RanksRule kUnmatchedCollectivesRule = {
    .id = "unmatched-collectives",
    .says = "in which collectives waits are unknown",
    .said_if = [] { return std::string("not all ranks ran them equally often"); },
    .find = find_unmatched};

}  // namespace epilogue::trace
