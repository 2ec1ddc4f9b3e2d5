// SPDX-License-Identifier: Apache-2.0
// Findings about several ranks of one run.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "explain/findings/rules.h"

namespace epilogue::trace {
namespace {

// A rank's waiting below this share of its span is not worth a line.
constexpr double kMinWaitShare = 0.02;
// Communication of which less than this share is hidden is exposed.
constexpr double kPoorOverlap = 0.5;
constexpr const char* kWhoIsNotHere =
    "a rank that is not here may have arrived later: then transfers are shorter and waits are "
    "longer than stated";

std::string here(const RanksExplanation& e) {
  return counted(static_cast<int64_t>(e.ranks.size()), "rank is", "ranks are");
}

void find_unknown_world(const RanksExplanation& e, std::vector<Finding>& out) {
  if (e.world_size || !e.missing.empty()) return;
  Finding f;
  f.title = fmt::format("no trace says how many ranks the run had; {} here", here(e));
  f.evidence.emplace_back(kWhoIsNotHere);
  out.push_back(std::move(f));
}

void find_missing(const RanksExplanation& e, std::vector<Finding>& out) {
  if (e.missing.empty()) return;
  std::vector<std::string> list;
  list.reserve(e.missing.size());
  for (const RankRange& range : e.missing)
    list.push_back(range.first == range.last ? fmt::format("{}", range.first)
                                             : fmt::format("{} to {}", range.first, range.last));
  Finding f;
  f.severity = Severity::warning;
  f.title = e.world_size
                ? fmt::format("{} of {} ranks {} here, missing: {}", e.ranks.size(), *e.world_size,
                              e.ranks.size() == 1 ? "is" : "are", fmt::join(list, ", "))
                : fmt::format("{} here, missing between them: {}", here(e), fmt::join(list, ", "));
  f.evidence.emplace_back(kWhoIsNotHere);
  out.push_back(std::move(f));
}

void find_left_out(const RanksExplanation& e, std::vector<Finding>& out) {
  if (e.left_out.empty()) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = e.left_out.size() == 1
                ? "1 file of the folder is left out: it cannot be read as a trace"
                : fmt::format("{} files of the folder are left out: they cannot be read as traces",
                              e.left_out.size());
  f.evidence = e.left_out;
  out.push_back(std::move(f));
}

void find_truncated(const RanksExplanation& e, std::vector<Finding>& out) {
  for (const RankSummary& r : e.ranks) {
    if (!r.is_truncated) continue;
    Finding f;
    f.severity = Severity::warning;
    f.title =
        fmt::format("the trace of rank {} ends early: its collectives are not matched", r.rank);
    f.evidence.push_back(r.path + ": what it lost is not known");
    out.push_back(std::move(f));
  }
}

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
    return fmt::format("{}: {} matched on {}, {} of transfer, up to {} of waiting", waits.name,
                       waits.count, waits.group.empty() ? "all ranks" : "ranks " + waits.group,
                       transfer, longest);
  return fmt::format("{}: {} matched, at most {} of transfer, one rank waits at least {}",
                     waits.name, waits.count, transfer, longest);
}

// How long each rank waits in the collectives of one group of ranks ("": all that are here).
struct GroupWaits {
  std::string group;
  std::vector<std::optional<int64_t>> wait_ns;  // by position
  size_t last = 0;                              // the rank that waits least
  size_t first = 0;                             // the rank that waits longest

  int64_t longest_ns() const { return *wait_ns[first]; }
};

void add_waits(const CollectiveWaits& waits, GroupWaits& group) {
  group.wait_ns.resize(waits.wait_ns.size());
  for (size_t r = 0; r < waits.wait_ns.size(); ++r)
    if (waits.wait_ns[r]) group.wait_ns[r] = group.wait_ns[r].value_or(0) + *waits.wait_ns[r];
}

void find_ends(GroupWaits& group) {
  std::vector<size_t> matched;
  for (size_t r = 0; r < group.wait_ns.size(); ++r)
    if (group.wait_ns[r]) matched.push_back(r);
  const auto [last, first] = std::minmax_element(
      matched.begin(), matched.end(),
      [&](size_t a, size_t b) { return *group.wait_ns[a] < *group.wait_ns[b]; });
  group.last = *last;
  group.first = *first;
}

// The group in which a rank waits longest.
std::optional<GroupWaits> worst_group(const RanksExplanation& e) {
  std::map<std::string, GroupWaits> groups;
  for (const CollectiveWaits& waits : e.collectives.waits) add_waits(waits, groups[waits.group]);
  std::optional<GroupWaits> worst;
  for (auto& [name, group] : groups) {
    group.group = name;
    find_ends(group);
    if (!worst || group.longest_ns() > worst->longest_ns()) worst = group;
  }
  return worst;
}

// The rank that waits least is the one that the others wait for.
void find_straggler(const RanksExplanation& e, std::vector<Finding>& out) {
  const std::optional<GroupWaits> group = worst_group(e);
  if (!group) return;
  const RankSummary& last = e.ranks[group->last];
  const RankSummary& first = e.ranks[group->first];
  const int64_t wait_ns = group->longest_ns();
  if (static_cast<double>(wait_ns) < kMinWaitShare * static_cast<double>(first.span_ns)) return;
  Finding f;
  f.severity = Severity::warning;
  const bool has_all = e.has_all_ranks();
  const std::string of_group = group->group.empty() ? "" : " of " + group->group;
  f.title = fmt::format("rank {} arrives last{}: rank {} waits {}{} in collectives", last.rank,
                        has_all ? of_group : " of those compared", first.rank,
                        e.waits_are_whole() ? "" : "at least ", format_duration_ns(wait_ns));
  for (const CollectiveWaits& waits : e.collectives.waits)
    if (waits.group == group->group) f.evidence.push_back(waits_evidence(waits, has_all));
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
  f.severity = share < kPoorOverlap ? Severity::warning : Severity::info;
  f.title = fmt::format("{:.0f} % of the communication runs beside other kernels", share * 100);
  const bool is_all = known == e.ranks.size() && e.has_all_ranks();
  f.evidence.push_back(fmt::format(
      "{} of {} over {}", format_duration_ns(overlap), format_duration_ns(communication),
      is_all ? "all ranks" : counted(static_cast<int64_t>(known), "rank", "ranks")));
  out.push_back(std::move(f));
}

}  // namespace

constinit const RanksRule kWorldSizeUnknownRule = {"world-size-unknown", find_unknown_world};
constinit const RanksRule kMissingRanksRule = {"missing-ranks", find_missing};
constinit const RanksRule kLeftOutFilesRule = {"left-out-files", find_left_out};
constinit const RanksRule kTruncatedRankRule = {"truncated-rank", find_truncated};
constinit const RanksRule kUnmatchedCollectivesRule = {"unmatched-collectives", find_unmatched};
constinit const RanksRule kStragglerRule = {"straggler", find_straggler};
constinit const RanksRule kCommunicationOverlapRule = {"communication-overlap", find_exposed};

}  // namespace epilogue::trace
