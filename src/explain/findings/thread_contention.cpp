// SPDX-License-Identifier: Apache-2.0
// Simple ops of a run without a device move fewer bytes than one core does.
#include "explain/findings/claims.h"
#include "explain/findings/index.h"
#include "explain/findings/stalled_ops.h"

namespace epilogue::trace {
namespace {

constexpr double kEnoughOfLoops = 0.02;

std::string contention_text() {
  return fmt::format(
      "elementwise ops are slower than {} GB/s and take over {} each (of ops on less than {} {} or "
      "more); or one simple op on contiguous f32 of {} to {}, which a cache holds and threads "
      "share, is below {} GB/s in most of {} calls or more and below {} GB/s in the fastest, or "
      "below {} GB/s in most: then all ops of these sizes that are as slow count; without such "
      "loops only if fewer than half as many simple ops are fast ({} GB/s on {} or more); {}, {} "
      "if such loops show it. It stands first, and the savings of other findings are of low "
      "confidence",
      kContendedGbPerS, duration(kStalledNs), round_bytes(kManyBytes), kSomeCalls,
      round_bytes(kSharedLoopBytes), round_bytes(kCachedBytes), kSlowMedian, kSomeCalls,
      kSlowFastest, kSurelySlowMedian, kFastGbPerS, round_bytes(kManyBytes), share_of_wall(),
      percent_text(kEnoughOfLoops));
}

void find_contention(const Explanation& e, const StalledOps& stalled, std::vector<Finding>& out) {
  if (is_said(out, kDenormalValuesRule)) return;  // they slow simple ops down, too
  const StalledOps::Result found = stalled.result();
  const std::vector<OpLoss> ops = found.ops.by_time();
  const int64_t ns = found.ops.total_ns();
  int64_t calls = 0;
  int64_t bytes = 0;
  for (const OpLoss& op : ops) {
    calls += op.count;
    bytes += op.bytes;
  }
  // A small op or two that another process interrupted are no habit of this one.
  const bool is_one_long = calls < kSomeCalls && bytes < calls * kManyBytes;
  if (ops.empty() || is_one_long) return;
  // Threads that wait in small loops also wait in products, which take most of a run.
  const bool is_shown = found.are_loops_slow && is_share_of(*e.host, ns, kEnoughOfLoops);
  if (!is_shown && !is_notable(*e.host, ns)) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format(
      "simple ops move {:.2f} GB/s, less than one core does: threads wait for each other or for "
      "busy cores",
      ops.front().gb_per_s());
  for (size_t i = 0; i < std::min(kHostFindings, ops.size()); ++i)
    f.evidence.push_back(fmt::format("{}: {} in {}, {}, {:.2f} GB/s", ops[i].name,
                                     duration(ops[i].ns), counted(ops[i].count, "call", "calls"),
                                     bytes_each(ops[i]), ops[i].gb_per_s()));
  advise(f,
         "all other ops suffer as well: use no more threads than free cores (OMP_NUM_THREADS, "
         "torch.set_num_threads), one process per core, or an idle machine");
  f.cost_us = to_us(ns);
  for (const OpLoss& op : ops) claim_op(f, op.name, op.ns);
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kContentionRule = {
    .id = "thread-contention",
    .says = "that simple ops of a run without a device move fewer bytes than one core does",
    .said_if = [] { return contention_text(); },
    .visits = visits_of<StalledOps, find_contention>()};

}  // namespace epilogue::trace
