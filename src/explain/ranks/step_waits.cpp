// SPDX-License-Identifier: Apache-2.0
#include "explain/ranks/step_waits.h"

#include <algorithm>
#include <iterator>

namespace epilogue::trace {
namespace {

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

}  // namespace

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
  StepWaits waits;
  waits.step = step;
  waits.count = sum.count;
  waits.wait_ns = sum.wait_ns;
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

}  // namespace epilogue::trace
