// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/ranks/rank_info.h"
#include "base/units.h"

namespace epilogue::trace {
namespace {

// A rank's waiting below this share of its span is not worth a line.
constexpr double kMinWaitShare = 0.02;
// Communication of which less than this share is hidden is exposed.
constexpr double kPoorOverlap = 0.5;

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

void find_missing(const RanksExplanation& e, std::vector<Finding>& out) {
  if (e.world_size && e.missing.empty()) return;
  Finding f;
  if (e.missing.empty()) {
    f.id = "world-size-unknown";
    f.title =
        fmt::format("no trace says of how many ranks the run was; {} are here", e.ranks.size());
  } else {
    std::vector<std::string> list;
    for (const RankRange& range : e.missing)
      list.push_back(range.first == range.last ? fmt::format("{}", range.first)
                                               : fmt::format("{} to {}", range.first, range.last));
    f.id = "missing-ranks";
    f.severity = Severity::kWarning;
    f.title = e.world_size ? fmt::format("{} of {} ranks are here, missing: {}", e.ranks.size(),
                                         *e.world_size, fmt::join(list, ", "))
                           : fmt::format("{} ranks are here, missing between them: {}",
                                         e.ranks.size(), fmt::join(list, ", "));
  }
  f.evidence.push_back(
      "who is not here may have arrived later: then transfers are shorter and waits longer than "
      "said here");
  out.push_back(std::move(f));
}

void find_truncated(const RanksExplanation& e, std::vector<Finding>& out) {
  for (const RankSummary& r : e.ranks) {
    if (!r.is_truncated) continue;
    Finding f;
    f.id = "truncated-rank";
    f.severity = Severity::kWarning;
    f.title =
        fmt::format("the trace of rank {} ends early: its collectives are not matched", r.rank);
    f.evidence.push_back(r.path + ": what it lost is not known");
    out.push_back(std::move(f));
  }
}

void find_unmatched(const RanksExplanation& e, std::vector<Finding>& out) {
  for (const std::string& name : e.collectives.unmatched) {
    Finding f;
    f.id = "unmatched-collectives";
    f.severity = Severity::kWarning;
    f.title = fmt::format("how long ranks wait in {} is unknown: they do not have it equally often",
                          name);
    for (size_t i = 0; i < e.ranks.size(); ++i) {
      if (e.ranks[i].is_truncated) continue;
      const std::vector<CollectiveStats>& kinds = e.collectives.ranks[i].kinds;
      const auto kind = std::find_if(kinds.begin(), kinds.end(),
                                     [&](const CollectiveStats& c) { return c.name == name; });
      f.evidence.push_back(
          fmt::format("rank {}: {}", e.ranks[i].rank, kind == kinds.end() ? 0 : kind->time.count));
    }
    out.push_back(std::move(f));
  }
}

std::string waits_evidence(const CollectiveWaits& waits, bool has_all_ranks) {
  // Ranks without a wait compare as less than any.
  const int64_t longest_ns =
      std::max_element(waits.wait_ns.begin(), waits.wait_ns.end())->value_or(0);
  const std::string transfer = format_duration_ns(waits.transfer_ns);
  const std::string longest = format_duration_ns(longest_ns);
  if (has_all_ranks)
    return fmt::format("{}: {} matched on all ranks, {} of transfer, up to {} of waiting",
                       waits.name, waits.count, transfer, longest);
  return fmt::format("{}: {} matched, at most {} of transfer, one rank waits at least {}",
                     waits.name, waits.count, transfer, longest);
}

// The rank that waits least is the one that the others wait for.
void find_straggler(const RanksExplanation& e, std::vector<Finding>& out) {
  std::vector<const RankSummary*> matched;
  for (const RankSummary& r : e.ranks)
    if (r.wait_ns) matched.push_back(&r);
  if (matched.empty()) return;
  const auto [last, first] = std::minmax_element(
      matched.begin(), matched.end(),
      [](const RankSummary* a, const RankSummary* b) { return *a->wait_ns < *b->wait_ns; });
  const int64_t wait_ns = *(*first)->wait_ns;
  if (static_cast<double>(wait_ns) < kMinWaitShare * static_cast<double>((*first)->span_ns)) return;
  Finding f;
  f.id = "straggler";
  f.severity = Severity::kWarning;
  const bool has_all = e.has_all_ranks();
  f.title = fmt::format("rank {} arrives last{}: rank {} waits {}{} in collectives", (*last)->rank,
                        has_all ? "" : " of those compared", (*first)->rank,
                        e.waits_are_whole() ? "" : "at least ", format_duration_ns(wait_ns));
  for (const CollectiveWaits& waits : e.collectives.waits)
    f.evidence.push_back(waits_evidence(waits, has_all));
  // A rank that was not compared may hold up all of them.
  if (has_all) f.saving_us = to_us(wait_ns);
  out.push_back(std::move(f));
}

void find_exposed(const RanksExplanation& e, std::vector<Finding>& out) {
  int64_t communication = 0;
  int64_t overlap = 0;
  size_t known = 0;
  for (const RankSummary& r : e.ranks) {
    if (!r.communication_ns || !r.overlap_ns) continue;
    communication += *r.communication_ns;
    overlap += *r.overlap_ns;
    ++known;
  }
  if (communication == 0) return;
  const double share = static_cast<double>(overlap) / static_cast<double>(communication);
  Finding f;
  f.id = "communication-overlap";
  f.severity = share < kPoorOverlap ? Severity::kWarning : Severity::kInfo;
  f.title = fmt::format("{:.0f} % of the communication runs beside other kernels", share * 100);
  const bool is_all = known == e.ranks.size() && e.has_all_ranks();
  f.evidence.push_back(fmt::format("{} of {} over {}", format_duration_ns(overlap),
                                   format_duration_ns(communication),
                                   is_all ? "all ranks" : fmt::format("{} ranks", known)));
  out.push_back(std::move(f));
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
  find_missing(e, e.findings);
  find_truncated(e, e.findings);
  find_unmatched(e, e.findings);
  find_straggler(e, e.findings);
  find_exposed(e, e.findings);
  return e;
}

}  // namespace epilogue::trace
