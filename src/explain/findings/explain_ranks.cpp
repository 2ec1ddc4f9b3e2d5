// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/explain_ranks.h"

#include <algorithm>
#include <set>
#include <utility>

#include "explain/findings/index.h"
#include "explain/ranks/rank_digest.h"

namespace epilogue::trace {
namespace {

std::optional<int64_t> wait_of(const Collectives& c, size_t rank) {
  std::optional<int64_t> sum;
  for (const CollectiveWaits& waits : c.waits)
    if (waits.wait_ns[rank]) sum = sum.value_or(0) + *waits.wait_ns[rank];
  return sum;
}

std::optional<int64_t> world_size_of(const std::vector<RankDigest>& ranks) {
  for (const RankDigest& r : ranks)
    if (r.identity.world_size) return r.identity.world_size;
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

RankSummary summary_of(const RankDigest& digest, const Collectives& all, size_t position) {
  const RankCollectives& c = all.ranks[position];
  RankSummary s;
  s.path = digest.identity.path;
  s.rank = c.rank;
  s.is_truncated = digest.is_truncated;
  s.bound = digest.bound;
  s.span_ns = c.span_ns;
  s.busy_pct = digest.busy_pct;
  // Of a run without a device too, if its CPUs had collectives.
  if (!s.is_truncated && (digest.has_kernels || !c.kinds.empty())) {
    s.communication_ns = c.communication_ns;
    s.overlap_ns = c.overlap_ns;
    s.time = digest.time;
  }
  s.wait_ns = wait_of(all, position);
  return s;
}

}  // namespace

bool RanksExplanation::has_all_ranks() const {
  return missing.empty() && std::none_of(ranks.begin(), ranks.end(),
                                         [](const RankSummary& r) { return r.is_truncated; });
}

RanksExplanation explain_ranks(const RankDigests& digests, std::vector<std::string> left_out) {
  RanksExplanation e;
  e.left_out = std::move(left_out);
  e.collectives = collectives(digests);
  for (size_t i = 0; i < digests.ranks.size(); ++i)
    e.ranks.push_back(summary_of(digests.ranks[i], e.collectives, i));
  std::vector<int64_t> numbers;
  numbers.reserve(e.ranks.size());
  for (const RankSummary& r : e.ranks) numbers.push_back(r.rank);
  e.kernels = kernels_over_ranks(digests, numbers);
  e.world_size = world_size_of(digests.ranks);
  e.missing = missing_ranks(e.ranks, e.world_size);
  for (const RanksRule* rule : kRanksRules) {
    const size_t first = e.findings.size();
    rule->find(e, e.findings);
    complete_findings(*rule, e.findings, first);
  }
  return e;
}

RanksExplanation explain_ranks(std::span<const RankTrace> ranks) {
  RankDigests digests;
  for (const RankTrace& rank : ranks) digests.add(rank);
  return explain_ranks(digests, {});
}

}  // namespace epilogue::trace
