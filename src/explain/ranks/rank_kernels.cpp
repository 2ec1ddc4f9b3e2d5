// SPDX-License-Identifier: Apache-2.0
#include "explain/ranks/rank_kernels.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <unordered_map>

#include "explain/index/device_busy.h"
#include "explain/timeline/work_kind.h"

namespace epilogue::trace {
namespace {

RankWork work_of(WorkKind kind) {
  switch (kind) {
    case WorkKind::compute: return RankWork::compute;
    case WorkKind::memory: return RankWork::memory;
    case WorkKind::communication: return RankWork::communication;
  }
  return RankWork::memory;
}

// As the verdict of one trace divides time: compute hides what runs beside it, and communication
// counts where no other kernel runs.
std::optional<DeviceTime> device_time(const RankTrace& rank, WorkKinds& kinds) {
  const Timeline time = timeline(rank.trace, rank.links);
  const std::optional<int32_t> device = busiest_device(rank.trace, rank.links);
  if (!device || !time.start_ns) return std::nullopt;
  std::array<std::vector<Interval>, kRankWorks> lists;
  for (const uint32_t i : rank.links.device_work) {
    const Event& e = rank.trace.events[i];
    if (e.category != Category::kernel || e.pid != *device) continue;
    lists[static_cast<size_t>(work_of(kinds.of(i, rank.links)))].push_back({e.ts_ns, e.end_ns()});
  }
  const auto united_of = [&](RankWork work) { return united(lists[static_cast<size_t>(work)]); };
  const IntervalSet span = {{*time.start_ns, *time.end_ns}};
  const IntervalSet busy = intersected(device_busy(rank.trace, rank.links, *device), span);
  const IntervalSet compute = intersected(united_of(RankWork::compute), span);
  const IntervalSet others = subtracted(busy, compute);
  const IntervalSet communication = intersected(subtracted(others, united_of(RankWork::memory)),
                                                united_of(RankWork::communication));
  DeviceTime result;
  result.compute_ns = total_ns(compute);
  result.communication_ns = total_ns(communication);
  result.memory_ns = total_ns(others) - result.communication_ns;
  result.idle_ns = time.span_ns() - total_ns(busy);
  return result;
}

// One kernel, summed over ranks.
struct Sum {
  int64_t count = 0;
  int64_t ranks = 0;
  int64_t total_ns = 0;
  int64_t min_ns = 0;
  int64_t max_ns = 0;
  size_t min_at = 0;  // positions
  size_t max_at = 0;
  RankWork work = RankWork::memory;
};

void add_to(Sum& sum, const RankKernel& kernel, size_t position) {
  if (sum.ranks == 0 || kernel.total_ns < sum.min_ns) {
    sum.min_ns = kernel.total_ns;
    sum.min_at = position;
  }
  if (sum.ranks == 0 || kernel.total_ns > sum.max_ns) {
    sum.max_ns = kernel.total_ns;
    sum.max_at = position;
  }
  sum.work = kernel.work;
  sum.count += kernel.count;
  sum.total_ns += kernel.total_ns;
  ++sum.ranks;
}

}  // namespace

std::string_view rank_work_name(RankWork work) {
  constexpr std::array<std::string_view, kRankWorks> kNames = {"compute", "memory",
                                                               "communication"};
  return kNames[static_cast<size_t>(work)];
}

void add_kernels(const RankTrace& rank, StringPool& names, RankDigest& digest) {
  const Trace& trace = rank.trace;
  WorkKinds kinds(trace);
  digest.time = device_time(rank, kinds);
  std::unordered_map<StringId, size_t> positions;  // by the trace's own id
  for (const uint32_t i : rank.links.device_work) {
    const Event& e = trace.events[i];
    if (e.category != Category::kernel) continue;
    const auto [found, is_new] = positions.emplace(e.name, digest.kernels.size());
    if (is_new)
      digest.kernels.push_back(
          {names.intern(trace.name(e)), work_of(kinds.of(i, rank.links)), 0, 0});
    RankKernel& kernel = digest.kernels[found->second];
    ++kernel.count;
    kernel.total_ns += e.dur_ns;
  }
}

std::vector<KernelOverRanks> kernels_over_ranks(const RankDigests& digests,
                                                const std::vector<int64_t>& rank_numbers) {
  std::unordered_map<StringId, Sum> sums;
  std::vector<size_t> compared;
  for (size_t r = 0; r < digests.ranks.size(); ++r) {
    const RankDigest& rank = digests.ranks[r];
    if (rank.is_truncated || !rank.has_kernels) continue;
    compared.push_back(r);
    for (const RankKernel& kernel : rank.kernels) add_to(sums[kernel.name], kernel, r);
  }
  std::vector<KernelOverRanks> result;
  for (const auto& [name, sum] : sums) {
    KernelOverRanks k;
    k.name = digests.names[name];
    k.work = sum.work;
    k.count = sum.count;
    k.ranks = sum.ranks;
    k.total_ns = sum.total_ns;
    k.mean_ns = sum.total_ns / std::ssize(compared);
    k.max_ns = sum.max_ns;
    k.max_rank = rank_numbers[sum.max_at];
    // A rank that did not run it took no time for it.
    k.min_ns = sum.ranks < std::ssize(compared) ? 0 : sum.min_ns;
    if (sum.ranks == std::ssize(compared)) k.min_rank = rank_numbers[sum.min_at];
    result.push_back(std::move(k));
  }
  std::sort(result.begin(), result.end(), [](const KernelOverRanks& a, const KernelOverRanks& b) {
    return a.total_ns != b.total_ns ? a.total_ns > b.total_ns : a.name < b.name;
  });
  return result;
}

}  // namespace epilogue::trace
