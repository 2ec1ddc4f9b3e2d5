// SPDX-License-Identifier: Apache-2.0
// Who was waited for, step by step.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "explain/ranks/rank_digest.h"

namespace epilogue::trace {

class StepWaitSums {
 public:
  explicit StepWaitSums(const std::vector<RankDigest>& ranks) : ranks_(ranks) {}

  // The n-th collective of `runs`, which go with `members`, the positions of two ranks or more.
  void add(const std::vector<size_t>& members,
           const std::vector<const std::vector<CollectiveRun>*>& runs, size_t n);
  // Fills in Collectives::steps and stragglers. Precondition: Collectives::ranks is there.
  void finish(Collectives& result) const;

 private:
  struct Sum {
    int64_t count = 0;
    std::vector<int64_t> lost_ns;  // to each rank, by position
    std::vector<std::optional<int64_t>> wait_ns;
  };

  StepWaits waits_of(int64_t step, const Sum& sum, const Collectives& result) const;

  const std::vector<RankDigest>& ranks_;
  std::map<int64_t, Sum> sums_;  // by number
};

}  // namespace epilogue::trace
