// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/chain_split.h"

#include <algorithm>

namespace epilogue::cpu {
namespace {

// Fewer rows than this per thread, and threads share the columns or the hidden columns instead.
constexpr int64_t kMinRowsPerThread = 12;

// One core, as measured on a server of 2023: f32 products with 512-bit vectors (bf16 takes half as
// long, and so do its bytes), weights that stream from L3 or memory, sums that other cores wrote.
constexpr double kProductFlopsPerNs = 100;
constexpr double kStreamBytesPerNs = 12;
constexpr double kSumBytesPerNs = 16;
// Handing work to threads that wait for it, and waiting for the last.
constexpr double kBarrierNs = 1000;

int64_t share(int64_t count, int64_t pieces) { return (count + pieces - 1) / pieces; }

// `m` rows times one panel on one core: arithmetic, or the weights' way to it.
double panel_ns(const StageSize& s, int64_t m) {
  const auto weights = static_cast<double>(s.panel_columns * s.k);
  return std::max(2 * static_cast<double>(m) * weights / kProductFlopsPerNs,
                  weights * static_cast<double>(s.weight_bytes) / kStreamBytesPerNs);
}

double columns_ns(int64_t rows, std::span<const StageSize> stages, int64_t threads) {
  double ns = 0;
  for (const StageSize& s : stages)
    ns += static_cast<double>(share(s.panels, threads)) * panel_ns(s, rows) +
          (s.panels > 1 ? kBarrierNs : 0);
  return ns;
}

double hidden_ns(int64_t rows, std::span<const StageSize> stages, int64_t threads,
                 const ChainSplit& split) {
  const StageSize& first = stages[0];
  const StageSize& second = stages[1];
  const int64_t m = share(rows, split.row_groups);
  const int64_t panels = share(first.panels, split.slices);
  const double part = static_cast<double>(panels) / static_cast<double>(first.panels);
  const double products = static_cast<double>(panels) * panel_ns(first, m) +
                          part * static_cast<double>(second.panels) * panel_ns(second, m);
  // Each thread writes its sums; then they are added up, by as many threads as that is worth.
  const int64_t width = second.panels * second.panel_columns;
  const int64_t sums = rows * width * split.slices;
  const int64_t adding = std::clamp<int64_t>(sums / kSliceSumsPerThread, 1, threads);
  const int64_t floats = m * width + share(sums, adding);
  const double traffic = static_cast<double>(4 * floats) / kSumBytesPerNs;
  return products + traffic + kBarrierNs + (adding > 1 ? kBarrierNs : 0);
}

}  // namespace

ChainSplit choose_split(int64_t rows, std::span<const StageSize> stages, int threads,
                        bool may_slice, bool may_group) {
  if (rows >= threads * kMinRowsPerThread || threads == 1) return {};
  ChainSplit best{ChainSplit::Kind::columns};
  if (!may_slice || stages.size() != 2) return best;
  double best_ns = columns_ns(rows, stages, threads);
  const int64_t most_groups = may_group ? std::max<int64_t>(1, rows / kMinRowsPerThread) : 1;
  for (int64_t groups = 1; groups <= most_groups && 2 * groups <= threads; ++groups) {
    const int64_t slices = std::min<int64_t>(threads / groups, stages[0].panels);
    if (slices < 2) continue;
    const ChainSplit split{ChainSplit::Kind::hidden, groups, slices};
    const double ns = hidden_ns(rows, stages, threads, split);
    if (ns >= best_ns) continue;
    best = split;
    best_ns = ns;
  }
  return best;
}

}  // namespace epilogue::cpu
