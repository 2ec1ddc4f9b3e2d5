// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/explain_ranks.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"

namespace epilogue::trace {
namespace {

// A rank's waiting below this share of its span is not worth a line.
constexpr double kMinWaitShare = 0.02;
// Communication of which less than this share is hidden is exposed.
constexpr double kPoorOverlap = 0.5;

int64_t wait_of(const Collectives& c, size_t rank) {
  int64_t sum = 0;
  for (const CollectiveWaits& waits : c.waits) sum += waits.wait_ns[rank];
  return sum;
}

// The rank that waits least is the one that the others wait for.
void find_straggler(const RanksExplanation& e, std::vector<Finding>& out) {
  if (e.collectives.waits.empty()) return;
  const auto [last, first] = std::minmax_element(
      e.ranks.begin(), e.ranks.end(),
      [](const RankSummary& a, const RankSummary& b) { return a.wait_ns < b.wait_ns; });
  if (static_cast<double>(first->wait_ns) < kMinWaitShare * static_cast<double>(first->span_ns))
    return;
  Finding f;
  f.id = "straggler";
  f.severity = Severity::kWarning;
  f.title = fmt::format("rank {} arrives last: rank {} waits {} in collectives", last->rank,
                        first->rank, format_duration_ns(first->wait_ns));
  for (const CollectiveWaits& waits : e.collectives.waits)
    f.evidence.push_back(fmt::format(
        "{}: {} matched on all ranks, {} of transfer, up to {} of waiting", waits.name, waits.count,
        format_duration_ns(waits.transfer_ns),
        format_duration_ns(*std::max_element(waits.wait_ns.begin(), waits.wait_ns.end()))));
  f.saving_us = to_us(first->wait_ns);
  out.push_back(std::move(f));
}

void find_exposed(const RanksExplanation& e, std::vector<Finding>& out) {
  int64_t communication = 0;
  int64_t overlap = 0;
  for (const RankSummary& r : e.ranks) {
    communication += r.communication_ns;
    overlap += r.overlap_ns;
  }
  if (communication == 0) return;
  const double share = static_cast<double>(overlap) / static_cast<double>(communication);
  Finding f;
  f.id = "communication-overlap";
  f.severity = share < kPoorOverlap ? Severity::kWarning : Severity::kInfo;
  f.title = fmt::format("{:.0f} % of the communication runs beside other kernels", share * 100);
  f.evidence.push_back(fmt::format("{} of {} over all ranks", format_duration_ns(overlap),
                                   format_duration_ns(communication)));
  out.push_back(std::move(f));
}

}  // namespace

RanksExplanation explain_ranks(std::span<const RankTrace> ranks) {
  RanksExplanation e;
  e.collectives = collectives(ranks);
  for (size_t i = 0; i < ranks.size(); ++i) {
    const RankTrace& r = ranks[i];
    const RankCollectives& c = e.collectives.ranks[i];
    const Timeline time = timeline(r.trace, r.links);
    e.ranks.push_back({r.trace.import.path, c.rank, judge_time(r.trace, r.links).whole.bound,
                       time.span_ns(), time.busy_pct(), c.communication_ns, c.overlap_ns,
                       wait_of(e.collectives, i)});
  }
  find_straggler(e, e.findings);
  find_exposed(e, e.findings);
  return e;
}

}  // namespace epilogue::trace
