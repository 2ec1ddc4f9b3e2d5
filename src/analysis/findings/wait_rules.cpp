// SPDX-License-Identifier: Apache-2.0
// Findings about what the device or the host waits for.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/findings/rules.h"

namespace epilogue::trace {
namespace {

std::string in_place(const std::string& where) { return where.empty() ? "" : " in " + where; }

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
    f.evidence.push_back(fmt::format("{}{}: {}, {}{}", spot.call, in_place(spot.where),
                                     counted(spot.time.count, "time", "times"),
                                     duration(spot.time.total_ns),
                                     spot.is_implied ? ", implied by the op" : ""));
  }
  f.saving_us = to_us(idle);
  out.push_back(std::move(f));
}

void find_data_loader(const Explanation& e, std::vector<Finding>& out) {
  const int64_t idle = idle_ns(e, IdleCause::data);
  if (!is_worth_it(e, to_us(idle))) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("the device idles {} while the host waits for data", duration(idle));
  constexpr size_t kShown = 3;
  for (size_t i = 0; i < std::min(kShown, e.hot_spots.loaders.size()); ++i) {
    const LoaderSpot& spot = e.hot_spots.loaders[i];
    f.evidence.push_back(
        times_line(spot.name, counted(spot.time.count, "time", "times"), spot.time));
  }
  f.evidence.emplace_back(
      "more loader workers (num_workers), fetching ahead (prefetch_factor) or cheaper decoding "
      "help");
  f.saving_us = to_us(idle);
  out.push_back(std::move(f));
}

void find_pageable_copies(const Explanation& e, std::vector<Finding>& out) {
  int64_t total_ns = 0;
  std::vector<std::string> evidence;
  for (const CopySpot& copy : e.hot_spots.copies) {
    if (!copy.is_pageable) continue;
    total_ns += copy.time.total_ns;
    std::string line =
        fmt::format("{}{}: {}, {}", copy.name, in_place(copy.where),
                    counted(copy.time.count, "copy", "copies"), duration(copy.time.total_ns));
    if (copy.bandwidth_gb_s) line += fmt::format(", {:.1f} GB/s", *copy.bandwidth_gb_s);
    evidence.push_back(std::move(line));
  }
  if (!is_worth_it(e, to_us(total_ns))) return;
  evidence.emplace_back("pin the host's memory (pin_memory=True) and copy with non_blocking=True");
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("copies of pageable memory take {}", duration(total_ns));
  f.evidence = std::move(evidence);
  out.push_back(std::move(f));
}

void find_collectives(const Explanation& e, std::vector<Finding>& out) {
  const int64_t exposed = e.collectives.communication_ns - e.collectives.overlap_ns;
  if (!is_worth_it(e, to_us(exposed))) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("collectives that no other kernel hides take {}", duration(exposed));
  for (const CollectiveStats& c : e.collectives.kinds)
    f.evidence.push_back(fmt::format("{}: {}, {}, of that {} exposed", c.name,
                                     counted(c.time.count, "time", "times"),
                                     duration(c.time.total_ns), duration(c.exposed_ns)));
  f.evidence.emplace_back(
      "a rank that arrives early waits here: explain the folder with all ranks to see for whom");
  f.saving_us = to_us(exposed);
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kSyncRule = {"sync", find_syncs};
constinit const ExplanationRule kDataLoaderRule = {"data-loader", find_data_loader};
constinit const ExplanationRule kPageableCopiesRule = {"pageable-copies", find_pageable_copies};
constinit const ExplanationRule kExposedCollectivesRule = {"exposed-collectives", find_collectives};

}  // namespace epilogue::trace
