// SPDX-License-Identifier: Apache-2.0
// The collectives of one rank, summed by kind.
#pragma once

#include "explain/ranks/rank_digest.h"

namespace epilogue::trace {

// Fills in RankDigest::collectives and runs.
void add_collectives(const RankTrace& rank, RankDigest& digest);

}  // namespace epilogue::trace
