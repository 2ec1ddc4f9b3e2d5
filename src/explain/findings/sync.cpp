// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/claims.h"
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

void find_syncs(const Explanation& e, std::vector<Finding>& out) {
  const int64_t idle = idle_ns(e, IdleCause::sync);
  if (!is_worth_it(e, to_us(idle))) return;
  Finding f;
  f.severity = Severity::warning;
  f.title =
      fmt::format("the device idles {} while the host waits for it or for copies", duration(idle));
  constexpr size_t kShown = 3;
  for (size_t i = 0; i < std::min(kShown, e.hot_spots.syncs.size()); ++i) {
    const SyncSpot& spot = e.hot_spots.syncs[i];
    f.evidence.push_back(
        fmt::format("{}{}: {}, the host waits {}{}", spot.call, in_place(spot.where),
                    counted(spot.time.count, "time", "times"), duration(spot.time.total_ns),
                    spot.is_implied ? ", implied by the op" : ""));
  }
  if (!e.hot_spots.syncs.empty() && e.hot_spots.syncs.front().is_implied)
    if (const std::string_view advice = sync_advice(e.hot_spots.syncs.front().where);
        !advice.empty())
      advise(f, advice);
  if (f.action.empty())
    f.action =
        "wait later, when the device has other work, and less often: synchronize(), .item() and "
        "copies to the host once every so many steps";
  f.saving_us = to_us(idle);
  claim_idle(e, f, {IdleCause::sync}, to_us(idle));
  out.push_back(std::move(f));
}

}  // namespace

std::string_view sync_advice(std::string_view op) {
  struct Advice {
    std::string_view op;
    std::string_view text;
  };
  constexpr Advice kAdvice[] = {
      {"aten::item",
       "aten::item needs the value on the host: keep it on the device (sum it up there, "
       "and print it every so many steps), or decide with torch.where"},
      {"aten::_local_scalar_dense", "keep the value on the device instead of reading it"},
      {"aten::is_nonzero", "an if on a tensor reads it: torch.where decides on the device"},
      {"aten::nonzero",
       "a boolean mask makes the host wait for its size: torch.where or masked_fill "
       "keep the size"},
      {"aten::index",
       "a boolean mask makes the host wait for its size: torch.where or masked_fill "
       "keep the size; an index from the host is copied each time"},
      {"aten::masked_select", "its size is read on the host: torch.where or masked_fill keep it"},
      {"aten::to",
       "a copy from memory that is not pinned blocks: pin_memory=True and "
       "non_blocking=True"},
      {"aten::cpu", "a copy to the host blocks: copy fewer times, or with non_blocking=True"}};
  for (const Advice& advice : kAdvice)
    if (advice.op == op) return advice.text;
  return "";
}

constinit const ExplanationRule kSyncRule = {
    .id = "sync",
    .says = "how long the device idled while the host waited for it",
    .said_if = [] { return "it idled " + over_min_share(); },
    .find = find_syncs,
    .confidence = Confidence::high,
    .where = FindingPlace::host};

}  // namespace epilogue::trace
