// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/rank_findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string>

#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

constexpr double kRankShare = 0.1;   // of the rank's span
constexpr size_t kRankFindings = 5;  // of one rank
// Of what a busy machine may do to one rank alone: calls, loops, Python.
constexpr double kOneRankShare = 0.2;

// It holds of a trace alone, or the ranks' own rules say it.
bool is_left_out(const Finding& f) {
  constexpr std::array<std::string_view, 14> kLeftOut = {
      "no-launch-ops",     "repeated-module",    "verdict",      "lost-data",
      "profiler-cost",     "memory-peak",        "slow-steps",   "exposed-collectives",
      "small-collectives", "repeated-reduction", "sent-buffers", "idle-gap",
      "main-work",         "occupancy-artefact"};
  // Ops that post collectives, and waits for them.
  const bool is_communication = f.title.starts_with("record_param_comms") ||
                                f.title.starts_with("c10d::") || f.title.starts_with("nccl:");
  return is_communication || std::ranges::find(kLeftOut, f.id) != kLeftOut.end();
}

// What a rank that waits for others seems to spend on its own loops and Python.
bool may_be_a_wait(std::string_view id) {
  constexpr std::array<std::string_view, 4> kOfTheHost = {"call-loop", "between-ops", "dispatch",
                                                          "uneven-calls"};
  return std::ranges::find(kOfTheHost, id) != kOfTheHost.end();
}

// -1: it says none.
template <class AnyFinding>
double time_of(const AnyFinding& f) {
  return f.saving_us.value_or(f.cost_us.value_or(-1));
}

// Numbers come from a file, too.
template <class Enum>
Enum enum_of(int64_t number, Enum last) {
  return static_cast<Enum>(std::clamp<int64_t>(number, 0, static_cast<int64_t>(last)));
}

Finding as_finding(const RankFinding& own) {
  Finding f;
  f.id = own.id;
  f.severity = enum_of(own.severity, Severity::error);
  f.title = own.title;
  f.evidence = own.evidence;
  f.saving_us = own.saving_us;
  f.cost_us = own.cost_us;
  if (own.confidence) f.confidence = enum_of(*own.confidence, Confidence::high);
  f.action = own.action;
  if (own.where) f.where = enum_of(*own.where, FindingPlace::host);
  return f;
}

// Titles of the same finding differ in numbers and their units.
std::string without_times(const std::string& title) {
  std::string text;
  for (size_t i = 0; i < title.size(); ++i) {
    const char c = title[i];
    if (std::isdigit(static_cast<unsigned char>(c)) == 0) {
      text += c;
      continue;
    }
    while (i < title.size() && (std::isdigit(static_cast<unsigned char>(title[i])) != 0 ||
                                title[i] == '.' || title[i] == ','))
      ++i;
    for (const std::string_view unit : {" ns", " us", " ms", " s"})
      if (title.compare(i, unit.size(), unit) == 0) {
        i += unit.size();
        break;
      }
    --i;
  }
  return text;
}

}  // namespace

void add_own_findings(const Explanation& e, RankDigest& digest) {
  digest.is_explained = true;
  std::vector<RankFinding>& list = digest.findings;
  for (const Finding& f : e.findings) {
    if (list.size() == kRankFindings) break;
    if (is_left_out(f) || f.severity == Severity::error || time_of(f) < kRankShare * wall_us(e))
      continue;
    RankFinding& own = list.emplace_back();
    own.id = f.id;
    own.severity = static_cast<int64_t>(f.severity);
    own.title = f.title;
    own.evidence = f.evidence;
    own.saving_us = f.saving_us;
    own.cost_us = f.cost_us;
    if (f.confidence) own.confidence = static_cast<int64_t>(*f.confidence);
    own.action = f.action;
    if (f.where) own.where = static_cast<int64_t>(*f.where);
  }
}

void add_findings_of_ranks(const RankDigests& digests, RanksExplanation& e) {
  struct Said {
    const RankFinding* finding = nullptr;  // of the rank that it takes most on
    std::vector<int64_t> ranks;
  };
  std::vector<int64_t> asked;
  std::map<std::pair<std::string, std::string>, Said> said;
  std::vector<std::pair<std::string, std::string>> order;
  for (size_t r = 0; r < digests.ranks.size(); ++r) {
    if (!digests.ranks[r].is_explained) continue;
    asked.push_back(e.ranks[r].rank);
    for (const RankFinding& f : digests.ranks[r].findings) {
      const std::pair key(f.id, without_times(f.title));
      Said& one = said[key];
      if (one.ranks.empty()) order.push_back(key);
      if (one.finding == nullptr || time_of(f) > time_of(*one.finding)) one.finding = &f;
      if (one.ranks.empty() || one.ranks.back() != e.ranks[r].rank)
        one.ranks.push_back(e.ranks[r].rank);
    }
  }
  for (const auto& key : order) {
    const Said& one = said.at(key);
    Finding f = as_finding(*one.finding);
    std::vector<int64_t> others;
    for (const int64_t rank : asked)
      if (std::ranges::find(one.ranks, rank) == one.ranks.end()) others.push_back(rank);
    // All ranks run the same program: what one alone has, and it waits, is the wait.
    const bool do_wait = std::ranges::all_of(one.ranks, [&](int64_t rank) {
      return std::ranges::any_of(e.ranks, [&](const RankSummary& r) {
        return r.rank == rank && static_cast<double>(r.wait_ns.value_or(0)) >=
                                     kRankShare * static_cast<double>(r.span_ns);
      });
    });
    const bool is_little = std::ranges::all_of(e.ranks, [&](const RankSummary& r) {
      return time_of(f) * kNsPerUs < kOneRankShare * static_cast<double>(r.span_ns);
    });
    if (!others.empty() && (do_wait || is_little) && may_be_a_wait(f.id)) continue;
    const std::string ranks = fmt::format("{}", fmt::join(one.ranks, " and "));
    const std::string line =
        asked.size() == 1 ? fmt::format("on rank {}, the only one that was looked at alone", ranks)
        : others.empty()  ? fmt::format("on ranks {} alike; times are those of one rank", ranks)
                          : fmt::format("on rank {}; on rank {} it takes less, or is not there",
                                        ranks, fmt::join(others, " and "));
    f.evidence.insert(f.evidence.begin(), line);
    e.findings.push_back(std::move(f));
  }
}

void sort_findings_of_ranks(RanksExplanation& e) {
  int64_t longest_wait_ns = 0;
  for (const RankSummary& r : e.ranks)
    longest_wait_ns = std::max(longest_wait_ns, r.wait_ns.value_or(0));
  // Communication of one rank beyond waits for late ranks, which no overlap hides.
  int64_t exposed_ns = 0;
  for (const RankSummary& r : e.ranks)
    exposed_ns += r.communication_ns.value_or(0) - r.overlap_ns.value_or(0);
  exposed_ns =
      exposed_ns / static_cast<int64_t>(std::max<size_t>(1, e.ranks.size())) - longest_wait_ns;
  // Overlap hides none of what a finding says need not be sent, and has no saving of its own.
  for (const Finding& f : e.findings)
    if (f.id == kCollectiveCostRule.id || f.id == kSmallCollectivesOfRanksRule.id ||
        f.id == kRepeatedReductionOfRanksRule.id || f.id == kSentBuffersOfRanksRule.id)
      exposed_ns -= static_cast<int64_t>(time_of(f) * kNsPerUs);
  // No file of a rank is among those that were left out.
  const bool is_whole = e.world_size && e.has_all_ranks();
  const auto weight = [&](const Finding& f) {
    if (f.id == kLeftOutFilesRule.id && is_whole) return 0.0;
    if (f.id == kCommunicationOverlapRule.id) return to_us(std::max<int64_t>(0, exposed_ns));
    const double us = time_of(f);
    return f.id == kChangingStragglersRule.id || f.confidence == Confidence::low ? us / 2 : us;
  };
  std::ranges::stable_sort(e.findings, [&](const Finding& a, const Finding& b) {
    // Those that frame the comparison have no time.
    const bool has_a = weight(a) >= 0;
    const bool has_b = weight(b) >= 0;
    return has_a != has_b ? !has_a : has_a && weight(a) > weight(b);
  });
}

}  // namespace epilogue::trace
