// SPDX-License-Identifier: Apache-2.0
// Is it together? Many collectives of few bytes, each of which pays the latency.
#include "explain/findings/claims.h"
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

constexpr int64_t kManyCollectives = 16;        // in a step
constexpr int64_t kManyWithoutSteps = 64;       // in the run
constexpr int64_t kSmallMessage = 256LL << 10;  // bytes of a collective, on average
constexpr double kSmallCollectivesShare = 0.1;  // of the span

constexpr std::string_view kOneBuffer =
    "put the tensors into one buffer and call the collective once (torch.cat of the flattened "
    "tensors, split afterwards; torch.distributed's coalescing of all_reduce), or let "
    "DistributedDataParallel do it in buckets, which also run beside the backward pass "
    "(bucket_cap_mb); async_op=True lets them run beside ops";

// The kind that is called again and again with little; null if there is none.
const CollectiveStats* small_kind(const RankCollectives& rank, int64_t steps) {
  for (const CollectiveStats& kind : rank.kinds) {
    const int64_t count = kind.time.count;
    if (count < (steps > 0 ? kManyCollectives * steps : kManyWithoutSteps)) continue;
    if (kind.bytes && *kind.bytes / count > kSmallMessage) continue;
    if (static_cast<double>(kind.time.total_ns) <
        kSmallCollectivesShare * static_cast<double>(rank.span_ns))
      continue;
    if (kind.bytes) return &kind;
  }
  return nullptr;
}

Finding finding_of(const CollectiveStats& kind, int64_t steps) {
  const int64_t count = kind.time.count;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("{} runs {}with {} each: {} for what one call could carry", kind.name,
                        steps > 0 ? fmt::format("{} times in a step ", count / steps)
                                  : fmt::format("{} times ", count),
                        format_bytes(*kind.bytes / count), duration(kind.time.total_ns));
  f.evidence.push_back(times_line(kind.name, counted(count, "call", "calls"), kind.time));
  f.evidence.push_back(fmt::format("{} in all", format_bytes(*kind.bytes)));
  advise(f, kOneBuffer);
  return f;
}

void find_small_collectives(const Explanation& e, std::vector<Finding>& out) {
  const auto steps = static_cast<int64_t>(e.steps.size());
  const CollectiveStats* kind = small_kind(e.collectives, steps);
  if (kind == nullptr) return;
  Finding f = finding_of(*kind, steps);
  const int64_t ns = e.host && e.host->collectives
                         ? std::min(e.host->collectives->alone_ns, kind->time.total_ns)
                         : kind->exposed_ns;
  f.cost_us = to_us(ns);
  // One call of each step stays.
  const int64_t stay = std::max<int64_t>(1, steps) * kind->time.median_ns;
  f.saving_us = to_us(std::max<int64_t>(0, ns - stay));
  if (e.host) f.claims.push_back({{std::string(kBetweenOpsPart)}, to_us(ns)});
  out.push_back(std::move(f));
}

void find_small_collectives_of_ranks(const RanksExplanation& e, std::vector<Finding>& out) {
  const auto steps = static_cast<int64_t>(e.collectives.steps.size());
  for (const RankCollectives& rank : e.collectives.ranks) {
    const CollectiveStats* kind = small_kind(rank, steps);
    if (kind == nullptr) continue;
    Finding f = finding_of(*kind, steps);
    f.evidence.insert(f.evidence.end() - 1,
                      fmt::format("on rank {}; the time has what it waits for others in it, at "
                                  "each of these calls anew",
                                  rank.rank));
    f.cost_us = to_us(kind->time.total_ns);
    out.push_back(std::move(f));
    return;
  }
}

std::string small_collectives_if() {
  return fmt::format(
      "a collective runs {} times in a step ({} without steps) or more, with {} or less each, and "
      "takes {}",
      kManyCollectives, kManyWithoutSteps, round_bytes(kSmallMessage),
      share_of_span(kSmallCollectivesShare));
}

}  // namespace

constinit const ExplanationRule kSmallCollectivesRule = {
    .id = "small-collectives",
    .says = "that many collectives carry few bytes each, where one could carry them all",
    .said_if = small_collectives_if,
    .find = find_small_collectives};

constinit const RanksRule kSmallCollectivesOfRanksRule = {
    .id = "small-collectives-of-ranks",
    .says = "the same, of the ranks of a folder",
    .said_if = small_collectives_if,
    .find = find_small_collectives_of_ranks};

}  // namespace epilogue::trace
