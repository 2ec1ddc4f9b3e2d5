// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

// Communication of which less than this share is hidden is exposed.
constexpr double kPoorOverlap = 0.5;

void find_exposed(const RanksExplanation& e, std::vector<Finding>& out) {
  int64_t communication = 0;
  int64_t overlap = 0;
  size_t known = 0;
  for (const RankSummary& r : e.ranks) {
    if (!r.communication_ns || !r.overlap_ns) continue;
    communication += *r.communication_ns;
    overlap += *r.overlap_ns;
    ++known;
  }
  if (communication == 0) return;
  const double share = static_cast<double>(overlap) / static_cast<double>(communication);
  Finding f;
  f.severity = share < kPoorOverlap ? Severity::warning : Severity::info;
  const bool is_on_host =
      std::ranges::all_of(e.ranks, [](const RankSummary& r) { return r.bound == Bound::cpu_only; });
  f.title = fmt::format("{:.0f} % of the communication runs beside {}", share * 100,
                        is_on_host ? "ops" : "other kernels");
  const bool is_all = known == e.ranks.size() && e.has_all_ranks();
  f.evidence.push_back(fmt::format(
      "{} of {} over {}", format_duration_ns(overlap), format_duration_ns(communication),
      is_all ? "all ranks" : counted(static_cast<int64_t>(known), "rank", "ranks")));
  if (share < kPoorOverlap) {
    advise(
        f,
        "start collectives while there is work left: DistributedDataParallel reduces its buckets "
        "beside the backward pass (gradients as views, bucket_cap_mb), FSDP prefetches "
        "(forward_prefetch, backward_prefetch), own calls take async_op=True and wait() late");
  } else {
    advise(f, "nothing: most of it is hidden");
  }
  out.push_back(std::move(f));
}

}  // namespace

constinit const RanksRule kCommunicationOverlapRule = {
    .id = "communication-overlap",
    .says = "how much of the communication runs beside other kernels, without a device beside ops",
    .said_if =
        [] { return "there is communication; a warning below " + percent_text(kPoorOverlap); },
    .find = find_exposed};

}  // namespace epilogue::trace
