// SPDX-License-Identifier: Apache-2.0
// Ranks that are not among the traces, or may not be.
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

constexpr const char* kWhoIsNotHere =
    "a rank that is not here may have arrived later: then transfers are shorter and waits are "
    "longer than stated";

std::string here(const RanksExplanation& e) {
  return counted(static_cast<int64_t>(e.ranks.size()), "rank is", "ranks are");
}

void find_unknown_world(const RanksExplanation& e, std::vector<Finding>& out) {
  if (e.world_size || !e.missing.empty()) return;
  Finding f;
  f.title = fmt::format("no trace says how many ranks the run had; {} here", here(e));
  f.evidence.emplace_back(kWhoIsNotHere);
  advise(f, "explain the folder with the traces of all ranks");
  out.push_back(std::move(f));
}

void find_missing(const RanksExplanation& e, std::vector<Finding>& out) {
  if (e.missing.empty()) return;
  std::vector<std::string> list;
  list.reserve(e.missing.size());
  for (const RankRange& range : e.missing)
    list.push_back(range.first == range.last ? fmt::format("{}", range.first)
                                             : fmt::format("{} to {}", range.first, range.last));
  Finding f;
  f.severity = Severity::warning;
  f.title = e.world_size
                ? fmt::format("{} of {} ranks {} here, missing: {}", e.ranks.size(), *e.world_size,
                              e.ranks.size() == 1 ? "is" : "are", fmt::join(list, ", "))
                : fmt::format("{} here, missing between them: {}", here(e), fmt::join(list, ", "));
  f.evidence.emplace_back(kWhoIsNotHere);
  advise(f, "explain the folder with the traces of all ranks");
  out.push_back(std::move(f));
}

}  // namespace

constinit const RanksRule kWorldSizeUnknownRule = {
    .id = "world-size-unknown",
    .says = "that no trace names the number of ranks",
    .said_if =
        [] { return std::string("none does, and no rank is missing between those compared"); },
    .find = find_unknown_world};
constinit const RanksRule kMissingRanksRule = {
    .id = "missing-ranks",
    .says = "which ranks are not among the traces",
    .said_if = [] { return std::string("there are such ranks"); },
    .find = find_missing};

}  // namespace epilogue::trace
