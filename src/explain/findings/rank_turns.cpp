// SPDX-License-Identifier: Apache-2.0
// Is it together? Ranks of which each computes while the others wait.
#include <algorithm>

#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

constexpr double kTurnWait = 0.25;   // of a rank's span, in collectives that nothing hides
constexpr double kTurnWork = 0.15;   // of its span, outside of them
constexpr double kOneAtATime = 1.2;  // spans that the work of all ranks together takes

void find_turns(const RanksExplanation& e, std::vector<Finding>& out) {
  if (e.ranks.size() < 2 || !e.has_all_ranks()) return;
  int64_t work_ns = 0;
  int64_t longest_ns = 0;
  int64_t waited_ns = 0;
  std::vector<std::string> lines;
  for (const RankSummary& r : e.ranks) {
    if (!r.communication_ns || !r.overlap_ns || r.span_ns <= 0) return;
    const int64_t waits = *r.communication_ns - *r.overlap_ns;
    const int64_t works = r.span_ns - waits;
    const auto span = static_cast<double>(r.span_ns);
    if (static_cast<double>(waits) < kTurnWait * span ||
        static_cast<double>(works) < kTurnWork * span)
      return;
    work_ns += works;
    longest_ns = std::max(longest_ns, r.span_ns);
    waited_ns = std::max(waited_ns, waits);
    lines.push_back(fmt::format("rank {} works {} of {} and waits {} in collectives", r.rank,
                                duration(works), duration(r.span_ns), duration(waits)));
  }
  // The transfer takes the time of ranks that send much data.
  int64_t transfer_ns = 0;
  for (const CollectiveWaits& waits : e.collectives.waits) transfer_ns += waits.transfer_ns;
  if (static_cast<double>(work_ns) > kOneAtATime * static_cast<double>(longest_ns) ||
      e.collectives.waits.empty() || 4 * transfer_ns > waited_ns)
    return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format(
      "the ranks work one after the other: together they work {} in {}, and each waits while "
      "another computes",
      duration(work_ns), duration(longest_ns));
  constexpr size_t kShown = 4;
  lines.resize(std::min(lines.size(), kShown));
  f.evidence = std::move(lines);
  advise(f,
         "cut the batch into micro-batches, so that a rank works on one while the next rank works "
         "on the one before (pipelining: torch.distributed.pipelining, isend and irecv of chunks); "
         "or give each rank its own part of the batch and the whole model (data parallel)");
  f.cost_us = to_us(waited_ns);
  out.push_back(std::move(f));
}

}  // namespace

constinit const RanksRule kRankTurnsRule = {
    .id = "rank-turns",
    .says =
        "that the ranks compute by turns: each waits for the one before (a pipeline of one "
        "batch)",
    .said_if =
        [] {
          return fmt::format(
              "each rank waits {} of its span or more in collectives that nothing hides, and works "
              "{} or more; the work of all ranks together is {:g} spans or less, and transfers are "
              "a quarter of the longest wait or less",
              percent_text(kTurnWait), percent_text(kTurnWork), kOneAtATime);
        },
    .find = find_turns};

}  // namespace epilogue::trace
