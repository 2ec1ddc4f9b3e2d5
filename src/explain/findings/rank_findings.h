// SPDX-License-Identifier: Apache-2.0
// The findings of single ranks in the answer for all of them.
#pragma once

#include "epilogue/trace/explain.h"
#include "explain/ranks/rank_digest.h"

namespace epilogue::trace {

// The first two and the last of a folder are looked at alone: what they have is most likely on all
// of them, and a folder of many ranks takes hardly longer. Two, since a file that is no trace may
// stand first.
constexpr bool is_explained_rank(size_t position, size_t count) {
  return position < 2 || position + 1 == count;
}

// Puts the findings of one rank's explanation into its digest: those that a comparison of ranks
// does not make itself.
void add_own_findings(const Explanation& e, RankDigest& digest);

// Adds what the digests' findings say: that it holds for these ranks alike, or on which it holds.
void add_findings_of_ranks(const RankDigests& digests, RanksExplanation& e);

// Findings without a time come first, then by time.
void sort_findings_of_ranks(RanksExplanation& e);

}  // namespace epilogue::trace
