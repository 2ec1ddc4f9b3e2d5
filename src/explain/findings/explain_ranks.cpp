// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/explain_ranks.h"

#include <algorithm>
#include <set>
#include <utility>

#include "explain/findings/index.h"
#include "explain/findings/rank_findings.h"
#include "explain/host/host_functions.h"
#include "explain/index/aten_ops.h"
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

// Of the wait for the last rank: what does not explain so much of it is no reason.
constexpr double kReasonShare = 0.2;

// A collective takes as long as ranks wait in it, or as its host is delayed: it is no work that
// another rank could do.
bool is_collective(std::string_view name) {
  return name.starts_with("c10d::") || name.starts_with("_c10d_functional::") ||
         name.starts_with("_c10d_functional_autograd::") || name == "record_param_comms" ||
         name.starts_with("nccl:") || is_cpu_collective(name);
}

// What the last rank spends more time on than the others do.
void name_what_is_late(const RankDigests& digests, RanksExplanation& e) {
  for (Finding& f : e.findings) {
    const bool names_one = f.title.starts_with("rank ") &&
                           (f.id == kStragglerRule.id || f.id == kPersistentStragglerRule.id);
    if (!names_one) continue;
    for (size_t last = 0; last < e.ranks.size(); ++last) {
      if (!f.title.starts_with(fmt::format("rank {} ", e.ranks[last].rank))) continue;
      std::pair<int64_t, std::string> most;
      int64_t others_ns = 0;
      for (const auto& [name, ns] : digests.ranks[last].host_ns) {
        if (is_collective(name)) continue;
        int64_t others = 0;
        for (size_t r = 0; r < digests.ranks.size(); ++r)
          if (const auto found = digests.ranks[r].host_ns.find(name);
              r != last && found != digests.ranks[r].host_ns.end())
            others = std::max(others, found->second);
        if (ns - others <= most.first) continue;
        most = {ns - others, name};
        others_ns = others;
      }
      if (static_cast<double>(most.first) < kReasonShare * f.cost_us.value_or(0) * kNsPerUs)
        continue;
      f.evidence.insert(
          f.evidence.begin(),
          fmt::format("{} takes {} on rank {}, {} on the others at most", most.second,
                      duration(most.first + others_ns), e.ranks[last].rank, duration(others_ns)));
      const std::string_view remedy = remedy_of_function(most.second);
      f.action = fmt::format(
          "look at {} on rank {}{}", most.second, e.ranks[last].rank,
          remedy.empty()
              ? (others_ns == 0
                     ? ": the others run none of it. If they wait for its result, "
                       "let each rank do its part: split the batch (rows, "
                       "requests) over all ranks, and join by all_reduce or "
                       "all_gather (of gradients DistributedDataParallel, with "
                       "the update on each rank); what one rank alone must do, "
                       "rarely or beside the others' work"
                     : ": give it less of that, or the others as much; if all ranks "
                       "call it as often on the same sizes, its machine is slower or has "
                       "other work")
              : ": " + std::string(remedy));
    }
  }
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
  name_what_is_late(digests, e);
  add_findings_of_ranks(digests, e);
  sort_findings_of_ranks(e);
  return e;
}

RanksExplanation explain_ranks(std::span<const RankTrace> ranks) {
  RankDigests digests;
  for (size_t i = 0; i < ranks.size(); ++i) {
    digests.add(ranks[i]);
    if (is_explained_rank(i, ranks.size()))
      add_own_findings(explain(ranks[i].trace, ranks[i].links), digests.ranks.back());
  }
  return explain_ranks(digests, {});
}

}  // namespace epilogue::trace
