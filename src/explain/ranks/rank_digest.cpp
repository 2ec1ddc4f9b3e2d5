// SPDX-License-Identifier: Apache-2.0
#include "explain/ranks/rank_digest.h"

#include "explain/ranks/rank_collectives.h"
#include "explain/ranks/rank_kernels.h"

namespace epilogue::trace {

void RankDigests::add(const RankTrace& rank) {
  RankDigest digest;
  digest.identity = rank_identity(rank.trace, names);
  digest.is_truncated = rank.trace.import.is_truncated;
  digest.has_kernels = rank.links.kernels > 0;
  if (!digest.is_truncated || !rank.links.device_work.empty())
    digest.bound = judge_time(rank.trace, rank.links).whole.bound;
  digest.busy_pct = timeline(rank.trace, rank.links).busy_pct();
  add_collectives(rank, digest);
  add_kernels(rank, names, digest);
  ranks.push_back(std::move(digest));
}

}  // namespace epilogue::trace
