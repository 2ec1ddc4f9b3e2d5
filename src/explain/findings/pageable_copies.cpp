// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

void find_pageable_copies(const Explanation& e, std::vector<Finding>& out) {
  constexpr size_t kShown = 3;
  int64_t total_ns = 0;
  size_t more = 0;
  std::vector<std::string> evidence;
  for (const CopySpot& copy : e.hot_spots.copies) {
    if (!copy.is_pageable) continue;
    total_ns += copy.time.total_ns;
    if (evidence.size() == kShown) {
      ++more;
      continue;
    }
    std::string line =
        fmt::format("{}{}: {}, {}", copy.name, in_place(copy.where),
                    counted(copy.time.count, "copy", "copies"), duration(copy.time.total_ns));
    if (copy.bandwidth_gb_s) line += fmt::format(", {:.1f} GB/s", *copy.bandwidth_gb_s);
    evidence.push_back(std::move(line));
  }
  if (!is_worth_it(e, to_us(total_ns))) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("copies of pageable memory take {}", duration(total_ns));
  f.evidence = std::move(evidence);
  if (more > 0) f.evidence.push_back(fmt::format("and {} more, each shorter", more));
  advise(f, "pin the host's memory (pin_memory=True) and copy with non_blocking=True");
  f.cost_us = to_us(total_ns);
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kPageableCopiesRule = {
    .id = "pageable-copies",
    .says = "how long copies of memory that is not pinned take",
    .said_if = [] { return "they take " + over_min_share(); },
    .find = find_pageable_copies};

}  // namespace epilogue::trace
