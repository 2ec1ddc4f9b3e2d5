// SPDX-License-Identifier: Apache-2.0
// The collectives of all ranks beside each other.
#include <algorithm>
#include <set>

#include "analysis/ranks/rank_collectives.h"
#include "analysis/ranks/rank_digest.h"
#include "analysis/ranks/rank_info.h"

namespace epilogue::trace {
namespace {

// Positions of the ranks whose traces have all their collectives.
std::vector<size_t> whole_ranks(const std::vector<RankDigest>& ranks) {
  std::vector<size_t> whole;
  for (size_t r = 0; r < ranks.size(); ++r)
    if (!ranks[r].is_truncated) whole.push_back(r);
  return whole;
}

// Empty where the ranks at the positions `whole` do not agree on how many there are.
std::optional<CollectiveWaits> waits_of(const std::vector<RankDigest>& ranks,
                                        const std::vector<size_t>& whole, const std::string& name) {
  const auto count_of = [&](size_t r) {
    const auto found = ranks[r].collective_ns.find(name);
    return found == ranks[r].collective_ns.end() ? 0 : found->second.size();
  };
  const size_t count = count_of(whole.front());
  for (const size_t r : whole)
    if (count_of(r) != count) return std::nullopt;
  CollectiveWaits waits;
  waits.name = name;
  waits.count = static_cast<int64_t>(count);
  waits.wait_ns.resize(ranks.size());
  for (const size_t r : whole) waits.wait_ns[r] = 0;
  for (size_t n = 0; n < count; ++n) {
    const auto dur_ns = [&](size_t r) { return ranks[r].collective_ns.at(name)[n]; };
    int64_t shortest_ns = dur_ns(whole.front());
    for (const size_t r : whole) shortest_ns = std::min(shortest_ns, dur_ns(r));
    waits.transfer_ns += shortest_ns;
    for (const size_t r : whole) *waits.wait_ns[r] += dur_ns(r) - shortest_ns;
  }
  return waits;
}

void match_ranks(const std::vector<RankDigest>& ranks, Collectives& result) {
  const std::vector<size_t> whole = whole_ranks(ranks);
  if (whole.size() < 2) return;
  std::set<std::string> names;
  for (const size_t r : whole)
    for (const auto& [name, list] : ranks[r].collective_ns) names.insert(name);
  for (const std::string& name : names) {
    if (std::optional<CollectiveWaits> waits = waits_of(ranks, whole, name))
      result.waits.push_back(std::move(*waits));
    else
      result.unmatched.push_back(name);
  }
}

}  // namespace

Collectives collectives(const RankDigests& digests) {
  Collectives result;
  for (size_t r = 0; r < digests.ranks.size(); ++r) {
    const RankDigest& digest = digests.ranks[r];
    result.ranks.push_back(digest.collectives);
    result.ranks.back().rank = digest.identity.rank.value_or(static_cast<int64_t>(r));
  }
  match_ranks(digests.ranks, result);
  return result;
}

Collectives collectives(std::span<const RankTrace> ranks) {
  RankDigests digests;
  for (const RankTrace& rank : ranks) {
    RankDigest& digest = digests.ranks.emplace_back();
    digest.identity.rank = rank_info(rank.trace).rank;
    digest.is_truncated = rank.trace.import.is_truncated;
    add_collectives(rank, digest);
  }
  return collectives(digests);
}

}  // namespace epilogue::trace
