// SPDX-License-Identifier: Apache-2.0
// What the device of one rank did: time by kind of work, time by kernel; and kernels over ranks.
#pragma once

#include "explain/ranks/rank_digest.h"

namespace epilogue::trace {

// Fills in RankDigest::time and kernels. Names go to `names`.
void add_kernels(const RankTrace& rank, StringPool& names, RankDigest& digest);

// Over the ranks whose traces are whole and have kernels; the largest first. `rank_numbers` are by
// position.
std::vector<KernelOverRanks> kernels_over_ranks(const RankDigests& digests,
                                                const std::vector<int64_t>& rank_numbers);

}  // namespace epilogue::trace
