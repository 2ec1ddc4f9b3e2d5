// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "explain/ranks/collective_calls.h"
#include "explain/ranks/rank_digest.h"

namespace epilogue::trace {
namespace {

// Who was waited for, step by step.

class StepWaitSums {
 public:
  explicit StepWaitSums(const std::vector<RankDigest>& ranks) : ranks_(ranks) {}

  // The n-th collective of `runs`, which go with `members`, the positions of two ranks or more.
  void add(const std::vector<size_t>& members,
           const std::vector<const std::vector<CollectiveRun>*>& runs, size_t n);
  // Fills in Collectives::steps and stragglers. Precondition: Collectives::ranks is there.
  void finish(Collectives& result) const;

 private:
  struct Sum {
    int64_t count = 0;
    std::vector<int64_t> lost_ns;  // to each rank, by position
    std::vector<std::optional<int64_t>> wait_ns;
  };

  StepWaits waits_of(int64_t step, const Sum& sum, const Collectives& result) const;

  const std::vector<RankDigest>& ranks_;
  std::map<int64_t, Sum> sums_;  // by number
};

std::vector<Straggler> stragglers_of(const std::vector<StepWaits>& steps) {
  std::map<int64_t, Straggler> by_rank;
  for (const StepWaits& step : steps) {
    if (!step.last_rank) continue;
    Straggler& straggler = by_rank[*step.last_rank];
    straggler.rank = *step.last_rank;
    ++straggler.steps;
    straggler.lost_ns += step.lost_ns;
  }
  std::vector<Straggler> list;
  list.reserve(by_rank.size());
  for (const auto& [rank, straggler] : by_rank) list.push_back(straggler);
  std::stable_sort(list.begin(), list.end(),
                   [](const Straggler& a, const Straggler& b) { return a.lost_ns > b.lost_ns; });
  return list;
}

void StepWaitSums::add(const std::vector<size_t>& members,
                       const std::vector<const std::vector<CollectiveRun>*>& runs, size_t n) {
  const int64_t step = (*runs.front())[n].step;
  size_t last = 0;  // the one with the shortest kernel
  for (size_t m = 0; m < members.size(); ++m) {
    if ((*runs[m])[n].step != step) return;
    if ((*runs[m])[n].dur_ns < (*runs[last])[n].dur_ns) last = m;
  }
  if (step < 0) return;
  Sum& sum = sums_[step];
  sum.lost_ns.resize(ranks_.size());
  sum.wait_ns.resize(ranks_.size());
  ++sum.count;
  int64_t lost_ns = 0;
  for (size_t m = 0; m < members.size(); ++m) {
    const CollectiveRun& run = (*runs[m])[n];
    const int64_t wait_ns = run.dur_ns - (*runs[last])[n].dur_ns;
    std::optional<int64_t>& total_ns = sum.wait_ns[members[m]];
    total_ns = total_ns.value_or(0) + wait_ns;
    lost_ns += std::min(wait_ns, run.exposed_ns);
  }
  sum.lost_ns[members[last]] += lost_ns / (std::ssize(members) - 1);
}

StepWaits StepWaitSums::waits_of(int64_t step, const Sum& sum, const Collectives& result) const {
  StepWaits waits = {.step = step, .count = sum.count, .wait_ns = sum.wait_ns};
  for (const RankDigest& rank : ranks_)
    if (const auto found = rank.step_ns.find(step); found != rank.step_ns.end())
      waits.span_ns = std::max(waits.span_ns, found->second);
  const auto most = std::max_element(sum.lost_ns.begin(), sum.lost_ns.end());
  waits.lost_ns = *most;
  if (*most > 0)
    waits.last_rank = result.ranks[static_cast<size_t>(most - sum.lost_ns.begin())].rank;
  return waits;
}

void StepWaitSums::finish(Collectives& result) const {
  for (const auto& [step, sum] : sums_) result.steps.push_back(waits_of(step, sum, result));
  result.stragglers = stragglers_of(result.steps);
}

}  // namespace

// The collectives of all ranks beside each other.

namespace {

// Positions of the ranks whose traces have all their collectives.
std::vector<size_t> whole_ranks(const std::vector<RankDigest>& ranks) {
  std::vector<size_t> whole;
  for (size_t r = 0; r < ranks.size(); ++r)
    if (!ranks[r].is_truncated) whole.push_back(r);
  return whole;
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
    // Groups that are smaller than the run and not named cannot be distinguished.
    const bool is_unknown = key.group.empty() && size && *size < std::ssize(whole_);
    std::optional<CollectiveWaits> waits;
    if (!is_unknown) waits = waits_of(key, members, size);
    if (waits) {
      waits->group = group;
      waits->group_name = key.group_name;
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
    CollectiveWaits waits = {.name = key.name, .count = std::ssize(*runs.front())};
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
  add_group_times(digests, result);
  return result;
}

Collectives collectives(std::span<const RankTrace> ranks) {
  RankDigests digests;
  for (const RankTrace& rank : ranks) {
    RankDigest& digest = digests.ranks.emplace_back();
    digest.identity.rank = rank_info(rank.trace).rank;
    digest.is_truncated = rank.trace.import.is_truncated;
    add_collectives(rank, timeline(rank.trace, rank.links).span_ns(), digest);
  }
  return collectives(digests);
}

}  // namespace epilogue::trace
