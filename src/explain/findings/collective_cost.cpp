// SPDX-License-Identifier: Apache-2.0
// Could it be less? The collective that takes most beyond waits for late ranks.
#include <algorithm>
#include <array>

#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

constexpr double kCostlyShare = 0.1;      // of the mean span
constexpr double kAfterStepsShare = 0.3;  // of all reductions

struct Remedy {
  std::string_view kind;
  std::string_view action;
};

std::string_view remedy_of_kind(std::string_view kind) {
  constexpr std::array<Remedy, 10> kRemedies = {{
      {"all_reduce",
       "send fewer bytes: float32 in place of float64, gradients in bf16 (bf16_compress_hook), "
       "accumulated over micro-batches under no_sync(), larger batches on each rank; of frozen or "
       "equal tensors nothing; of metrics send sums every N steps; if each rank reads its own part "
       "of the sum alone, reduce_scatter; and beside the backward pass "
       "(DistributedDataParallel, async_op=True)"},
      {"all_gather",
       "gather less: if rows or heads were repeated or expanded for it (keys and values of grouped "
       "queries), gather them before they are repeated and repeat behind it; if a grid or a "
       "sequence is cut, exchange only the boundary rows with the neighbours "
       "(batch_isend_irecv); if rows are padded, gather the counts first and then only the rows "
       "that are filled (all_to_all_single); if weights are gathered that do not change "
       "(inference, frozen layers), gather them once and keep them; if columns of a layer's result "
       "are gathered for the next layer, cut that one by rows (its inputs), without a gather, and "
       "all_reduce the partial sums (as Megatron does); if all ranks compute the same from what "
       "they gather, compute the own rows only; if the parts are only added up or averaged behind "
       "it, all_reduce; else reduce on each rank first (sums, top-k or argmax in place of logits); "
       "metrics every N steps"},
      {"reduce_scatter",
       "send fewer bytes: bf16 for gradients, larger batches on each rank, accumulation"},
      {"all_to_all",
       "send fewer rows: if the same ids are asked for again (popular items), each distinct one "
       "once (torch.unique with return_inverse) and spread them behind it; of experts a smaller "
       "capacity factor (or counts first and then the rows that are filled), the own node first; "
       "bf16; if what is received is only summed "
       "or averaged behind it (embeddings of the items of a history), reduce before the exchange, "
       "on the rank that owns the rows"},
      {"broadcast",
       "send it once: constants and weights that ranks hold already need no broadcast in each step "
       "(broadcast_buffers=False, data loaders on each rank); weights that one rank updates: "
       "all_reduce the gradients and update on each rank"},
      {"gather",
       "gather less: sums or top-k of each rank in place of whole tensors, every N steps"},
      {"scatter", "let each rank load its own part (DistributedSampler)"},
      {"send_recv",
       "send fewer and larger tensors (stack them), fewer bytes (float32 or bf16, only the rows "
       "that are read), and beside work: irecv before it, isend behind it (batch_isend_irecv), "
       "wait() late; of stages in a row more micro-batches; a sum that goes round the ranks "
       "by hand is all_reduce"},
      {"reduce",
       "send fewer bytes (float32 in place of float64, bf16), sums in place of whole tensors, "
       "every N steps; if all ranks need it, one all_reduce in place of reduce and broadcast"},
      {"barrier", "no barrier in the step: collectives order the ranks as far as they need it"},
  }};
  for (const Remedy& remedy : kRemedies)
    if (kind == remedy.kind) return remedy.action;
  return "send less, less often, or beside ops (async_op=True, wait() late)";
}

// Another finding says what the collectives of the kind are for.
bool is_said_of(const std::vector<Finding>& findings, std::string_view kind) {
  return std::ranges::any_of(findings, [&](const Finding& f) {
    const bool is_about = f.id == kSmallCollectivesOfRanksRule.id ||
                          f.id == kRepeatedReductionOfRanksRule.id ||
                          f.id == kSentBuffersOfRanksRule.id;
    const auto names = [&](const std::string& text) {
      return text.find(kind) != std::string::npos;
    };
    return f.id == kRankTurnsRule.id ||
           (is_about && (names(f.title) || std::ranges::any_of(f.evidence, names)));
  });
}

// Means over ranks.
struct Cost {
  std::string_view kind;
  int64_t ns = 0;
  int64_t count = 0;
  std::optional<int64_t> bytes;
};

Cost largest_cost(const RanksExplanation& e, int64_t ranks) {
  Cost most;
  for (const CollectiveStats& first : e.collectives.ranks.front().kinds) {
    int64_t exposed_ns = 0;
    for (const RankCollectives& rank : e.collectives.ranks)
      for (const CollectiveStats& kind : rank.kinds)
        if (kind.name == first.name) exposed_ns += kind.exposed_ns;
    bool is_matched = false;
    for (const CollectiveWaits& waits : e.collectives.waits) {
      if (waits.name != first.name) continue;
      is_matched = true;
      for (const std::optional<int64_t>& ns : waits.wait_ns) exposed_ns -= ns.value_or(0);
    }
    // Calls that are not matched may be waits alone.
    if (is_matched && exposed_ns / ranks > most.ns)
      most = {first.name, exposed_ns / ranks, first.time.count, first.bytes};
  }
  return most;
}

void find_collective_cost(const RanksExplanation& e, std::vector<Finding>& out) {
  if (e.collectives.ranks.size() < 2 || !e.has_all_ranks()) return;
  const auto ranks = std::ssize(e.collectives.ranks);
  int64_t span_ns = 0;
  int64_t after_ns = 0;
  int64_t after = 0;
  for (const RankCollectives& rank : e.collectives.ranks) {
    span_ns += rank.span_ns / ranks;
    after_ns += rank.ddp_forwards > 0 ? rank.after_steps_ns / ranks : 0;
    after = std::max(after, rank.reduces_after_steps);
  }
  const Cost cost = largest_cost(e, ranks);
  if (static_cast<double>(cost.ns) < kCostlyShare * static_cast<double>(span_ns) ||
      is_said_of(out, cost.kind))
    return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("{} takes {} of {} beyond what ranks wait for each other", cost.kind,
                        duration(cost.ns), duration(span_ns));
  f.evidence.push_back(fmt::format(
      "{} on each rank{}", counted(cost.count, "call", "calls"),
      cost.bytes ? fmt::format(", {} in all", format_bytes(static_cast<double>(*cost.bytes)))
                 : std::string()));
  f.cost_us = to_us(cost.ns);
  if (cost.kind == "all_reduce" &&
      static_cast<double>(after_ns) >= kAfterStepsShare * static_cast<double>(cost.ns)) {
    f.evidence.push_back(
        fmt::format("{} of them come after a step of the optimizer and before the next forward "
                    "pass, {} in all: beside those of DistributedDataParallel",
                    after, duration(after_ns)));
    advise(f,
           "DistributedDataParallel averages the gradients, so that weights stay equal on all "
           "ranks: averaging weights or optimizer state again changes nothing and can go; or train "
           "without DDP and average every N steps (local SGD)");
  } else {
    advise(f, remedy_of_kind(cost.kind));
  }
  out.push_back(std::move(f));
}

}  // namespace

constinit const RanksRule kCollectiveCostRule = {
    .id = "collective-cost",
    .says =
        "which kind of collective takes most beyond waits for late ranks, and how it could send "
        "less; that weights are averaged though DDP keeps them equal",
    .said_if =
        [] {
          return fmt::format(
              "all ranks are here, and what of it runs beside no other work, less the waits, is {} "
              "of the mean span or more; no other finding says what these collectives are for",
              percent_text(kCostlyShare));
        },
    .find = find_collective_cost};

}  // namespace epilogue::trace
