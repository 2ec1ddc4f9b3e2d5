// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

// A rank's waiting below this share of its span is not worth a line.
constexpr double kMinWaitShare = 0.02;

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

// One rank holds up the others if it waits for them itself no longer than this share of what they
// wait for it,
constexpr double kLastsOwnWait = 0.25;

// and if it is the last in more than half of the steps in which anybody waits.
bool is_last_in_most_steps(const RanksExplanation& e, int64_t rank) {
  int64_t steps = 0;
  int64_t as_last = 0;
  for (const Straggler& s : e.collectives.stragglers) {
    steps += s.steps;
    if (s.rank == rank) as_last = s.steps;
  }
  return steps == 0 || 2 * as_last > steps;
}

bool holds_up_the_others(const RanksExplanation& e, const GroupWaits& group) {
  return static_cast<double>(*group.wait_ns[group.last]) <=
             kLastsOwnWait * static_cast<double>(group.longest_ns()) &&
         is_last_in_most_steps(e, e.ranks[group.last].rank);
}

// If one rank holds up the others, that is the one that waits least.
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
  const bool is_one = holds_up_the_others(e, *group);
  if (!is_one && std::ranges::find(out, kRankTurnsRule.id, &Finding::id) != out.end()) return;
  const std::string at_least = e.waits_are_whole() ? "" : "at least ";
  f.title = is_one ? fmt::format("rank {} arrives last{}: rank {} waits {}{} in collectives",
                                 last.rank, has_all ? of_group : " of those compared", first.rank,
                                 at_least, format_duration_ns(wait_ns))
                   : fmt::format(
                         "the ranks{} wait for each other in collectives: rank {} {}{}, "
                         "rank {} {}{}; none is always the last",
                         of_group, first.rank, at_least, format_duration_ns(wait_ns), last.rank,
                         at_least, format_duration_ns(*group->wait_ns[group->last]));
  for (const CollectiveWaits& waits : e.collectives.waits)
    if (waits.group == group->group) f.evidence.push_back(waits_evidence(waits, has_all));
  f.cost_us = to_us(wait_ns);
  // A rank that was not compared may hold up all of them.
  if (has_all && is_one) f.saving_us = f.cost_us;
  f.action = is_one ? fmt::format(
                          "look at what rank {} does before it arrives: its share of the "
                          "work, its data loader, what else runs on its machine",
                          last.rank)
                    : "give all ranks work that takes equally long, and look for pauses that come "
                      "now on one, now on another: data loaders, garbage collection, other "
                      "processes";
  out.push_back(std::move(f));
}

}  // namespace

constinit const RanksRule kStragglerRule = {
    .id = "straggler",
    .says =
        "which rank arrives last, and how long the others wait for it; or that the ranks wait for "
        "each other",
    .said_if =
        [] {
          return fmt::format(
              "a rank waits {} of its span or more; the last one is named if it waits a quarter of "
              "that itself or less, and is the last in most steps",
              percent_text(kMinWaitShare));
        },
    .find = find_straggler};

}  // namespace epilogue::trace
