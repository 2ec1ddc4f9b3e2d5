// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/chain/chain_plan.h"

#include <algorithm>

#include "base/ceil_div.h"

namespace epilogue::cpu {
namespace {

ChainSplit split_of(int64_t rows, const ChainShape& shape, RowChainTuning::Split wanted,
                    int threads) {
  using Split = RowChainTuning::Split;
  switch (wanted) {
    case Split::rows: return {};
    case Split::columns: return {ChainSplit::Kind::columns};
    case Split::hidden:
      if (shape.may_slice && threads > 1)
        return {ChainSplit::Kind::hidden, 1, std::min<int64_t>(threads, shape.stages[0].panels)};
      break;
    case Split::automatic: break;
  }
  // Two stages are all that slices need to know.
  const std::span<const StageSize> stages = shape.stages;
  return choose_split(rows, stages.first(std::min<size_t>(stages.size(), 2)), threads,
                      shape.may_slice, shape.may_group);
}

// Equal shares: 64 rows for 2 threads are 2 x 32, not 48 and 16.
int64_t blocks_of(int64_t rows, int64_t unit, int64_t most, int64_t threads) {
  const int64_t blocks = std::max<int64_t>(1, ceil_div(ceil_div(rows, threads), most) * threads);
  return std::clamp<int64_t>(ceil_div(rows, unit), 1, blocks);
}

}  // namespace

int64_t likely_block_rows(bool has_tiles, int64_t weight_bytes) {
  constexpr int64_t kMemoryWeights = int64_t{64} << 20;
  constexpr int64_t kRowsFromMemory = 256;
  if (weight_bytes > kMemoryWeights) return kRowsFromMemory;
  return has_tiles ? 2 * kRowChainBlockRows : kRowChainBlockRows;
}

RowChainPlan plan_chain(int64_t rows, const ChainShape& shape, const RowChainTuning& tuning,
                        int threads, const MachineRates& rates) {
  RowChainPlan p;
  const ChainSplit split = split_of(rows, shape, tuning.split, threads);
  p.splits_rows = split.kind == ChainSplit::Kind::rows;
  p.hidden_slices = split.slices;
  if (p.splits_rows) {
    const int64_t most = tuning.block_rows > 0 ? tuning.block_rows : shape.block_rows;
    p.blocks = blocks_of(rows, shape.row_unit, most, threads);
    const int64_t units = ceil_div(ceil_div(rows, shape.row_unit), p.blocks);
    p.block_rows = std::max<int64_t>(1, std::min(rows, units * shape.row_unit));
  } else {
    p.block_rows = std::max<int64_t>(1, ceil_div(rows, split.row_groups));
    p.blocks = ceil_div(rows, p.block_rows);
  }
  const int worth = tuning.threads > 0 ? std::min(tuning.threads, threads)
                                       : choose_threads(rows, shape.stages, split, threads, rates);
  const int64_t pieces = p.splits_rows         ? p.blocks
                         : p.hidden_slices > 1 ? p.blocks * p.hidden_slices
                                               : threads;
  p.threads = static_cast<int>(std::min<int64_t>(pieces, worth));
  p.scratch_bytes = shape.widest_row_bytes * p.block_rows * (p.splits_rows ? p.threads : p.blocks);
  if (p.hidden_slices > 1)
    p.scratch_bytes +=
        p.hidden_slices * rows * shape.result_columns * static_cast<int64_t>(sizeof(float));
  return p;
}

RowRange rows_of_block(int64_t rows, int64_t unit, int64_t blocks, int64_t index) {
  const int64_t units = ceil_div(rows, unit);
  return {units * index / blocks * unit, std::min(rows, units * (index + 1) / blocks * unit)};
}

}  // namespace epilogue::cpu
