// SPDX-License-Identifier: Apache-2.0
// Ranks explained from what is kept of their traces.
#pragma once

#include <string>
#include <vector>

#include "epilogue/trace/explain.h"
#include "explain/ranks/rank_digest.h"

namespace epilogue::trace {

// `left_out`: as RanksExplanation::left_out.
RanksExplanation explain_ranks(const RankDigests& digests, std::vector<std::string> left_out);

}  // namespace epilogue::trace
