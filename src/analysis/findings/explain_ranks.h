// SPDX-License-Identifier: Apache-2.0
// Ranks explained from what is kept of their traces.
#pragma once

#include "analysis/ranks/rank_digest.h"
#include "epilogue/trace/explain.h"

namespace epilogue::trace {

RanksExplanation explain_ranks(const RankDigests& digests);

}  // namespace epilogue::trace
