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
    "(bucket_cap_mb); async_op=True lets them run beside ops; of SyncBatchNorm, which gathers the "
    "statistics of each layer, plain batch norm or group norm if the batch of a rank is large";

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

// What `find` says of the first rank of which it says something.
template <class Find>
void find_on_ranks(const RanksExplanation& e, std::vector<Finding>& out, std::string_view more,
                   Find find) {
  for (const RankCollectives& rank : e.collectives.ranks) {
    std::optional<Finding> f = find(rank);
    if (!f) continue;
    // The action stays last.
    f->evidence.insert(
        f->evidence.end() - 1,
        fmt::format("on rank {}; the time has what it waits for others in it{}", rank.rank, more));
    out.push_back(std::move(*f));
    return;
  }
}

void find_small_collectives_of_ranks(const RanksExplanation& e, std::vector<Finding>& out) {
  const auto steps = static_cast<int64_t>(e.collectives.steps.size());
  find_on_ranks(e, out, ", at each of these calls anew",
                [&](const RankCollectives& rank) -> std::optional<Finding> {
                  const CollectiveStats* kind = small_kind(rank, steps);
                  if (kind == nullptr) return std::nullopt;
                  Finding f = finding_of(*kind, steps);
                  f.cost_us = to_us(kind->time.total_ns);
                  return f;
                });
}

std::string small_collectives_if() {
  return fmt::format(
      "a collective runs {} times in a step ({} without steps) or more, with {} or less each, and "
      "takes {}",
      kManyCollectives, kManyWithoutSteps, round_bytes(kSmallMessage),
      share_of_span(kSmallCollectivesShare));
}

// --- Gradients that are reduced before they are complete -------------------------------

constexpr double kDdpShare = 0.05;  // of the span

// The collective of DistributedDataParallel's passes that takes notable time; null if there is
// none.
const CollectiveStats* kind_of_passes(const RankCollectives& rank, std::string_view word) {
  for (const CollectiveStats& kind : rank.kinds)
    if (kind.name.find(word) != std::string::npos && kind.time.count >= rank.ddp_forwards &&
        static_cast<double>(kind.time.total_ns) >= kDdpShare * static_cast<double>(rank.span_ns))
      return &kind;
  return nullptr;
}

struct Reductions {
  const CollectiveStats* kind = nullptr;
  int64_t passes = 0;  // for each step of the optimizer
};

// DistributedDataParallel reduces after each backward pass, several of which are for one step of
// the optimizer. no_sync() would leave reductions to one pass of them.
Reductions repeated_reductions(const RankCollectives& rank) {
  if (rank.optimizer_steps == 0 || rank.ddp_forwards < 2 * rank.optimizer_steps) return {};
  return {kind_of_passes(rank, "all_reduce"), rank.ddp_forwards / rank.optimizer_steps};
}

Finding reduction_finding(const Reductions& of, const RankCollectives& rank) {
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format(
      "gradients are accumulated over {} micro-batches, and DDP runs all_reduce after each of "
      "them: {} of {}",
      of.passes, duration(of.kind->time.total_ns), duration(rank.span_ns));
  f.evidence.push_back(
      fmt::format("{} forward passes of DistributedDataParallel, {} of the optimizer, {} {} times",
                  rank.ddp_forwards, counted(rank.optimizer_steps, "step", "steps"), of.kind->name,
                  of.kind->time.count));
  advise(f,
         "wrap all but the last micro-batch of a step in model.no_sync(): their gradients add up "
         "on each rank, and one all_reduce per optimizer step carries the sum");
  return f;
}

void find_repeated_reductions(const Explanation& e, std::vector<Finding>& out) {
  const Reductions of = repeated_reductions(e.collectives);
  if (of.kind == nullptr) return;
  Finding f = reduction_finding(of, e.collectives);
  const int64_t ns =
      e.host && e.host->collectives ? e.host->collectives->alone_ns : of.kind->exposed_ns;
  f.cost_us = to_us(ns);
  f.saving_us = to_us(ns / of.passes * (of.passes - 1));
  if (e.host) f.claims.push_back({{std::string(kBetweenOpsPart)}, to_us(ns)});
  out.push_back(std::move(f));
}

void find_repeated_reductions_of_ranks(const RanksExplanation& e, std::vector<Finding>& out) {
  find_on_ranks(e, out, "", [](const RankCollectives& rank) -> std::optional<Finding> {
    const Reductions of = repeated_reductions(rank);
    if (of.kind == nullptr) return std::nullopt;
    Finding f = reduction_finding(of, rank);
    f.cost_us = to_us(of.kind->time.total_ns);
    return f;
  });
}

std::string repeated_reductions_if() {
  return fmt::format(
      "`DistributedDataParallel.forward` runs twice for each `Optimizer.step` or more, and so does "
      "all_reduce, which takes {}",
      share_of_span(kDdpShare));
}

// --- Buffers that are sent before each forward pass ------------------------------------

// DistributedDataParallel broadcasts the module's buffers from rank 0 at each forward pass.
const CollectiveStats* sent_buffers(const RankCollectives& rank) {
  return rank.ddp_forwards == 0 ? nullptr : kind_of_passes(rank, "broadcast");
}

Finding buffers_finding(const CollectiveStats& kind, const RankCollectives& rank) {
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format(
      "DistributedDataParallel sends the module's buffers from rank 0 before each forward pass: {} "
      "of {}",
      duration(kind.time.total_ns), duration(rank.span_ns));
  f.evidence.push_back(fmt::format("{} runs {} times in {}", kind.name, kind.time.count,
                                   counted(rank.ddp_forwards, "forward pass", "forward passes")));
  advise(f,
         "pass broadcast_buffers=False to DistributedDataParallel if the buffers are constants or "
         "equal on all ranks (tables, masks, positions; statistics of batch norms by "
         "SyncBatchNorm), or keep constants out of the buffers");
  f.cost_us = to_us(kind.time.total_ns);
  return f;
}

void find_sent_buffers(const Explanation& e, std::vector<Finding>& out) {
  const CollectiveStats* kind = sent_buffers(e.collectives);
  if (kind == nullptr) return;
  Finding f = buffers_finding(*kind, e.collectives);
  if (e.host) f.claims.push_back({{std::string(kBetweenOpsPart)}, *f.cost_us});
  out.push_back(std::move(f));
}

void find_sent_buffers_of_ranks(const RanksExplanation& e, std::vector<Finding>& out) {
  find_on_ranks(e, out, "", [](const RankCollectives& rank) -> std::optional<Finding> {
    const CollectiveStats* kind = sent_buffers(rank);
    if (kind == nullptr) return std::nullopt;
    return buffers_finding(*kind, rank);
  });
}

std::string sent_buffers_if() {
  return fmt::format(
      "broadcasts run as often as `DistributedDataParallel.forward` or more, and take {}",
      share_of_span(kDdpShare));
}

}  // namespace

constinit const ExplanationRule kSentBuffersRule = {
    .id = "sent-buffers",
    .says = "that DDP broadcasts buffers before each forward pass",
    .said_if = sent_buffers_if,
    .find = find_sent_buffers};

constinit const RanksRule kSentBuffersOfRanksRule = {.id = "sent-buffers-of-ranks",
                                                     .says = "the same, of the ranks of a folder",
                                                     .said_if = sent_buffers_if,
                                                     .find = find_sent_buffers_of_ranks};

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

constinit const ExplanationRule kRepeatedReductionRule = {
    .id = "repeated-reduction",
    .says = "that DDP reduces gradients after each of several micro-batches of a step",
    .said_if = repeated_reductions_if,
    .find = find_repeated_reductions};

constinit const RanksRule kRepeatedReductionOfRanksRule = {
    .id = "repeated-reduction-of-ranks",
    .says = "the same, of the ranks of a folder",
    .said_if = repeated_reductions_if,
    .find = find_repeated_reductions_of_ranks};

}  // namespace epilogue::trace
