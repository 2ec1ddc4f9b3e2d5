// SPDX-License-Identifier: Apache-2.0
// The collectives of all ranks beside each other.
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "explain/ranks/collective_rates.h"
#include "explain/ranks/rank_collectives.h"
#include "explain/ranks/rank_digest.h"
#include "explain/ranks/rank_info.h"
#include "explain/ranks/step_waits.h"

namespace epilogue::trace {
namespace {

// Positions of the ranks whose traces have all their collectives.
std::vector<size_t> whole_ranks(const std::vector<RankDigest>& ranks) {
  std::vector<size_t> whole;
  for (size_t r = 0; r < ranks.size(); ++r)
    if (!ranks[r].is_truncated) whole.push_back(r);
  return whole;
}

// "[0, 1, 2]" -> 0, 1, 2. Empty if it is no whole list.
std::vector<int64_t> ranks_of_group(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  std::vector<int64_t> ranks;
  if (!json.is_array()) return ranks;
  for (const auto& rank : json) {
    if (!rank.is_number_integer()) return {};
    ranks.push_back(rank.get<int64_t>());
  }
  return ranks;
}

// Matches the collectives of all ranks, key by key.
class RankMatcher {
 public:
  RankMatcher(const std::vector<RankDigest>& ranks, Collectives& result)
      : ranks_(ranks), result_(result), whole_(whole_ranks(ranks)), steps_(ranks) {}

  void match() {
    if (whole_.size() < 2) return;
    std::set<CollectiveKey> keys;
    for (const size_t r : whole_)
      for (const auto& [key, runs] : ranks_[r].runs) keys.insert(key);
    for (const CollectiveKey& key : keys) match(key);
    steps_.finish(result_);
  }

 private:
  const CollectiveRuns* runs_of(size_t r, const CollectiveKey& key) const {
    const auto found = ranks_[r].runs.find(key);
    return found == ranks_[r].runs.end() ? nullptr : &found->second;
  }

  std::optional<int64_t> group_ranks(const CollectiveKey& key) const {
    for (const size_t r : whole_)
      if (const CollectiveRuns* runs = runs_of(r, key)) return runs->group_ranks;
    return std::nullopt;
  }

  // Positions of the whole ranks that take part. Without a recorded group all do.
  std::vector<size_t> members_of(const CollectiveKey& key) const {
    if (key.group.empty()) return whole_;
    const std::vector<int64_t> group = ranks_of_group(key.group);
    std::vector<size_t> members;
    for (const size_t r : whole_) {
      const int64_t rank = result_.ranks[r].rank;
      const bool is_member = group.empty()
                                 ? runs_of(r, key) != nullptr
                                 : std::find(group.begin(), group.end(), rank) != group.end();
      if (is_member) members.push_back(r);
    }
    return members;
  }

  void match(const CollectiveKey& key) {
    const std::vector<size_t> members = members_of(key);
    if (members.size() < 2) return;  // nobody here to compare with
    const std::string group = members.size() < whole_.size() ? key.group : "";
    const std::optional<int64_t> size = group_ranks(key);
    // Groups that are smaller than the run and not named cannot be told from each other.
    const bool is_unknown = key.group.empty() && size && *size < std::ssize(whole_);
    std::optional<CollectiveWaits> waits;
    if (!is_unknown) waits = waits_of(key, members, size);
    if (waits) {
      waits->group = group;
      result_.waits.push_back(std::move(*waits));
    } else {
      const std::string name = group.empty() ? key.name : key.name + " " + group;
      if (std::find(result_.unmatched.begin(), result_.unmatched.end(), name) ==
          result_.unmatched.end())
        result_.unmatched.push_back(name);
    }
  }

  // Empty where the members do not agree on how many there are.
  std::optional<CollectiveWaits> waits_of(const CollectiveKey& key,
                                          const std::vector<size_t>& members,
                                          std::optional<int64_t> group_ranks) {
    std::vector<const std::vector<CollectiveRun>*> runs;
    for (const size_t r : members) {
      const CollectiveRuns* of_rank = runs_of(r, key);
      if (of_rank == nullptr || (!runs.empty() && of_rank->runs.size() != runs.front()->size()))
        return std::nullopt;
      runs.push_back(&of_rank->runs);
    }
    CollectiveWaits waits;
    waits.name = key.name;
    waits.count = std::ssize(*runs.front());
    waits.wait_ns.resize(ranks_.size());
    for (const size_t r : members) waits.wait_ns[r] = 0;
    const std::optional<double> factor =
        group_ranks ? bus_factor(key.name, *group_ranks) : std::nullopt;
    CollectiveRateSum rates;
    for (size_t n = 0; n < runs.front()->size(); ++n) {
      int64_t shortest_ns = (*runs.front())[n].dur_ns;
      std::optional<int64_t> bytes = (*runs.front())[n].message_bytes;
      for (const auto* list : runs) {
        shortest_ns = std::min(shortest_ns, (*list)[n].dur_ns);
        if (bytes != (*list)[n].message_bytes) bytes.reset();
      }
      waits.transfer_ns += shortest_ns;
      rates.add(bytes, factor, shortest_ns);
      steps_.add(members, runs, n);
      for (size_t m = 0; m < members.size(); ++m)
        *waits.wait_ns[members[m]] += (*runs[m])[n].dur_ns - shortest_ns;
    }
    waits.rates = rates.rates();
    return waits;
  }

  const std::vector<RankDigest>& ranks_;
  Collectives& result_;
  const std::vector<size_t> whole_;
  StepWaitSums steps_;
};

}  // namespace

Collectives collectives(const RankDigests& digests) {
  Collectives result;
  for (size_t r = 0; r < digests.ranks.size(); ++r) {
    const RankDigest& digest = digests.ranks[r];
    result.ranks.push_back(digest.collectives);
    result.ranks.back().rank = digest.identity.rank.value_or(static_cast<int64_t>(r));
  }
  RankMatcher(digests.ranks, result).match();
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
