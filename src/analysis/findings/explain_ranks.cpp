// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/explain.h"

#include <algorithm>
#include <set>

#include "analysis/findings/rules.h"
#include "analysis/ranks/rank_info.h"

namespace epilogue::trace {
namespace {

std::optional<int64_t> wait_of(const Collectives& c, size_t rank) {
  std::optional<int64_t> sum;
  for (const CollectiveWaits& waits : c.waits)
    if (waits.wait_ns[rank]) sum = sum.value_or(0) + *waits.wait_ns[rank];
  return sum;
}

std::optional<int64_t> world_size_of(std::span<const RankTrace> ranks) {
  for (const RankTrace& r : ranks)
    if (const RankInfo info = rank_info(r.trace); info.world_size) return info.world_size;
  return std::nullopt;
}

// Ranges, since a trace may claim any size of its world.
std::vector<RankRange> missing_ranks(const std::vector<RankSummary>& ranks,
                                     std::optional<int64_t> world_size) {
  std::set<int64_t> here;
  for (const RankSummary& r : ranks) here.insert(r.rank);
  std::vector<RankRange> missing;
  if (here.empty()) return missing;
  int64_t expected = world_size ? 0 : *here.begin();
  for (const int64_t rank : here) {
    if (rank > expected) missing.push_back({expected, rank - 1});
    expected = rank + 1;
  }
  if (world_size && *world_size > expected) missing.push_back({expected, *world_size - 1});
  return missing;
}

RankSummary summary_of(const RankTrace& rank, const Collectives& all, size_t position) {
  const RankCollectives& c = all.ranks[position];
  const Timeline time = timeline(rank.trace, rank.links);
  RankSummary s;
  s.path = rank.trace.import.path;
  s.rank = c.rank;
  s.is_truncated = rank.trace.import.is_truncated;
  s.bound = judge_time(rank.trace, rank.links).whole.bound;
  if (s.is_truncated && rank.links.device_work.empty()) s.bound.reset();
  s.span_ns = time.span_ns();
  s.busy_pct = time.busy_pct();
  if (!s.is_truncated && rank.links.kernels > 0) {
    s.communication_ns = c.communication_ns;
    s.overlap_ns = c.overlap_ns;
  }
  s.wait_ns = wait_of(all, position);
  return s;
}

}  // namespace

bool RanksExplanation::has_all_ranks() const {
  return missing.empty() && std::none_of(ranks.begin(), ranks.end(),
                                         [](const RankSummary& r) { return r.is_truncated; });
}

RanksExplanation explain_ranks(std::span<const RankTrace> ranks) {
  RanksExplanation e;
  e.collectives = collectives(ranks);
  for (size_t i = 0; i < ranks.size(); ++i)
    e.ranks.push_back(summary_of(ranks[i], e.collectives, i));
  e.world_size = world_size_of(ranks);
  e.missing = missing_ranks(e.ranks, e.world_size);
  e.findings = apply_rules(kRanksRules, e);
  return e;
}

}  // namespace epilogue::trace
