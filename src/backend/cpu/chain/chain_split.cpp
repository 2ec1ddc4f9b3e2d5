// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/chain/chain_split.h"

#include <algorithm>

#include "base/caches.h"
#include "base/ceil_div.h"

namespace epilogue::cpu {
namespace {

// Groups of rows that slices of hidden columns are made of, at least.
constexpr int64_t kMinGroupRows = 12;
// From so many rows per thread on each thread takes rows of its own, whatever the weights.
constexpr int64_t kManyRows = 256;
// Where each thread takes rows of its own, each reads all weights. Sharing columns must be so much
// faster.
constexpr double kWorthSharing = 1.04;
// Rows whose arithmetic hides behind the weights' way.
constexpr int64_t kOverlappingRows = 8;
// Weights that stay in L2 whoever reads them.
constexpr int64_t kSmallWeights = int64_t{1} << 20;

// Sums that other cores wrote, and rows that they wrote for the next stage's tile products, which
// also read them again for each chunk of columns.
constexpr double kSumBytesPerNs = 16;
constexpr double kSharedRowBytesPerNs = 7;
// A second thread must save this much: one that sleeps takes microseconds to wake.
constexpr double kLeastGainNs = 1500;

// What one core does: arithmetic, and how fast weights come to it.
struct CoreRates {
  double f32_flops_per_ns;
  double bf16_flops_per_ns;
  double stream_bytes_per_ns;
  double handoff_ns;
};

// The split decides bits: these rates are constants. bf16 counts as f32 does, for a core without
// instructions for it; tiles count as what is left of their peak in long products.
constexpr CoreRates kSplitRates = {kFallbackRates.f32_flops_per_ns, kFallbackRates.f32_flops_per_ns,
                                   kFallbackRates.stream_bytes_per_ns, kFallbackRates.handoff_ns};
constexpr double kTileFlopsPerNs = 1900;

CoreRates split_rates(std::span<const StageSize> stages) {
  CoreRates rates = kSplitRates;
  if (stages[0].has_tiles) rates.bf16_flops_per_ns = kTileFlopsPerNs;
  return rates;
}

double weight_bytes_of(std::span<const StageSize> stages) {
  double bytes = 0;
  for (const StageSize& s : stages)
    bytes += static_cast<double>(s.panels * s.panel_columns * s.k * s.weight_bytes);
  return bytes;
}

// `m` rows times one panel on one core: arithmetic and the weights' way to it. With one row they
// overlap, with many the way is short beside the arithmetic; between, neither hides the other.
double panel_ns(const StageSize& s, int64_t m, const CoreRates& core) {
  const auto weights = static_cast<double>(s.panel_columns * s.k);
  const double flops_per_ns = s.is_bf16 ? core.bf16_flops_per_ns : core.f32_flops_per_ns;
  const double flops_ns = 2 * static_cast<double>(m) * weights / flops_per_ns;
  const double bytes_ns = weights * static_cast<double>(s.weight_bytes) / core.stream_bytes_per_ns;
  return m <= kOverlappingRows ? std::max(flops_ns, bytes_ns) : flops_ns + bytes_ns;
}

double alone_ns(int64_t rows, std::span<const StageSize> stages, const CoreRates& core) {
  double ns = 0;
  for (const StageSize& s : stages) ns += static_cast<double>(s.panels) * panel_ns(s, rows, core);
  return ns;
}

double elements_ns(int64_t rows, std::span<const StageSize> stages) {
  double elements = 0;
  for (const StageSize& s : stages)
    elements += static_cast<double>(rows * s.panels * s.panel_columns);
  return elements * kElementNs;
}

double columns_ns(int64_t rows, std::span<const StageSize> stages, int64_t threads,
                  const CoreRates& core) {
  double ns = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    const StageSize& s = stages[i];
    ns += static_cast<double>(ceil_div(s.panels, threads)) * panel_ns(s, rows, core) +
          (s.panels > 1 ? core.handoff_ns : 0);
    if (i > 0 && s.has_tiles) {
      const int64_t others = rows * s.k * s.weight_bytes * (threads - 1) / threads;
      ns += static_cast<double>(others) / kSharedRowBytesPerNs;
    }
  }
  return ns;
}

double hidden_ns(int64_t rows, std::span<const StageSize> stages, int64_t threads,
                 const ChainSplit& split, const CoreRates& core) {
  const StageSize& first = stages[0];
  const StageSize& second = stages[1];
  const int64_t m = ceil_div(rows, split.row_groups);
  const int64_t panels = ceil_div(first.panels, split.slices);
  const double part = static_cast<double>(panels) / static_cast<double>(first.panels);
  const double products = static_cast<double>(panels) * panel_ns(first, m, core) +
                          part * static_cast<double>(second.panels) * panel_ns(second, m, core);
  // Each thread writes its sums; then they are added up, by as many threads as that is worth.
  const int64_t width = second.panels * second.panel_columns;
  const int64_t sums = rows * width * split.slices;
  const int64_t adding = std::clamp<int64_t>(sums / kSliceSumsPerThread, 1, threads);
  const int64_t floats = m * width + ceil_div(sums, adding);
  const double traffic = static_cast<double>(4 * floats) / kSumBytesPerNs;
  return products + traffic + core.handoff_ns + (adding > 1 ? core.handoff_ns : 0);
}

}  // namespace

ChainSplit choose_split(int64_t rows, std::span<const StageSize> stages, int threads,
                        bool may_slice, bool may_group) {
  if (threads == 1 || rows >= threads * kManyRows) return {};
  CoreRates core = split_rates(stages);
  if (weight_bytes_of(stages) < kSmallWeights) core.stream_bytes_per_ns = kCachedBytesPerNs;
  ChainSplit best{ChainSplit::Kind::columns};
  double best_ns = columns_ns(rows, stages, threads, core);
  if (may_slice && stages.size() == 2) {
    const int64_t most_groups = may_group ? std::max<int64_t>(1, rows / kMinGroupRows) : 1;
    for (int64_t groups = 1; groups <= most_groups && 2 * groups <= threads; ++groups) {
      const int64_t slices = std::min<int64_t>(threads / groups, stages[0].panels);
      if (slices < 2) continue;
      const ChainSplit split{ChainSplit::Kind::hidden, groups, slices};
      const double ns = hidden_ns(rows, stages, threads, split, core);
      if (ns >= best_ns) continue;
      best = split;
      best_ns = ns;
    }
  }
  if (rows < threads * kMinGroupRows) return best;
  const double rows_ns = alone_ns(ceil_div(rows, threads), stages, core) + core.handoff_ns;
  return rows_ns > kWorthSharing * best_ns ? best : ChainSplit{};
}

int choose_threads(int64_t rows, std::span<const StageSize> stages, const ChainSplit& split,
                   int threads, const MachineRates& rates) {
  if (threads == 1) return 1;
  static const auto l2_bytes = static_cast<double>(cpu_caches().l2_bytes);
  const double weight_bytes = weight_bytes_of(stages);
  CoreRates core = {rates.f32_flops_per_ns, rates.bf16_flops_per_ns, rates.stream_bytes_per_ns,
                    rates.handoff_ns};
  if (weight_bytes < l2_bytes) core.stream_bytes_per_ns = kCachedBytesPerNs;
  const double elements = elements_ns(rows, stages);
  const double alone = alone_ns(rows, stages, core) + elements;
  if (alone < kLeastGainNs + core.handoff_ns) return 1;
  if (weight_bytes >= l2_bytes)
    core.stream_bytes_per_ns = std::min(
        core.stream_bytes_per_ns, rates.stream_bytes_per_ns_all / static_cast<double>(threads));
  double together = elements / static_cast<double>(threads);
  switch (split.kind) {
    case ChainSplit::Kind::rows:
      together += alone_ns(ceil_div(rows, threads), stages, core) + core.handoff_ns;
      break;
    case ChainSplit::Kind::columns: together += columns_ns(rows, stages, threads, core); break;
    case ChainSplit::Kind::hidden: together += hidden_ns(rows, stages, threads, split, core); break;
  }
  return together + kLeastGainNs < alone ? threads : 1;
}

}  // namespace epilogue::cpu
