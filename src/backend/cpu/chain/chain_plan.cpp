// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/chain/chain_plan.h"

#include <algorithm>
#include <atomic>

#include "base/ceil_div.h"
#include "base/machine.h"

namespace epilogue::cpu {
namespace {

ChainSplit by_columns(int64_t rows, int64_t rows_at_once) {
  return {ChainSplit::Kind::columns, rows_at_once > 0 ? ceil_div(rows, rows_at_once) : 1};
}

ChainSplit split_of(int64_t rows, const ChainShape& shape, const KernelTuning& tuning,
                    int threads) {
  using Split = KernelTuning::Split;
  switch (tuning.split) {
    case Split::rows: return {};
    case Split::columns: return by_columns(rows, tuning.block_rows);
    case Split::hidden:
      if (shape.may_slice && threads > 1)
        return {ChainSplit::Kind::hidden, 1, std::min<int64_t>(threads, shape.stages[0].panels)};
      break;
    case Split::automatic: break;
  }
  // Two stages are all that slices need to know.
  const std::span<const StageSize> stages = shape.stages;
  const ChainSplit split = choose_split(rows, stages.first(std::min<size_t>(stages.size(), 2)),
                                        threads, shape.may_slice, shape.may_group);
  if (split.kind != ChainSplit::Kind::rows || threads == 1 || shape.shared_rows == 0) return split;
  return by_columns(rows, shape.shared_rows);
}

// One thread's last tile more or less than another's is nothing in a share of so many.
constexpr int64_t kManyTiles = 16;

int64_t unit_of(int64_t rows, const ChainShape& shape, int64_t threads) {
  return rows >= threads * kManyTiles * shape.tile_rows ? shape.tile_rows : shape.row_unit;
}

// Equal shares: 64 rows for 2 threads are 2 x 32, not 48 and 16.
int64_t blocks_of(int64_t rows, int64_t unit, int64_t most, int64_t threads) {
  const int64_t blocks = std::max<int64_t>(1, ceil_div(ceil_div(rows, threads), most) * threads);
  return std::clamp<int64_t>(ceil_div(rows, unit), 1, blocks);
}

// What a thread remembers of the chains that it ran last.
struct Remembered {
  uint64_t key = 0;  // 0: nothing
  int64_t rows = 0;
  Isa isa = Isa::baseline;
  int threads = 0;
  MachineRates rates;
  RowChainPlan plan;
};
// Keys are consecutive: so many chains do not get into each other's way.
constexpr size_t kRemembered = 256;

}  // namespace

uint64_t next_plan_key() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

const RowChainPlan& recall_plan(uint64_t key, int64_t rows,
                                FunctionRef<RowChainPlan(int64_t)> make) {
  thread_local std::vector<Remembered> table(kRemembered);
  Remembered& known = table[key % kRemembered];
  const MachineRates rates = machine_rates();
  const Isa isa = active_isa();
  const int threads = num_threads();
  if (known.key != key || known.rows != rows || known.isa != isa || known.threads != threads ||
      !(known.rates == rates))
    known = {key, rows, isa, threads, rates, make(rows)};
  return known.plan;
}

int64_t likely_block_rows(bool has_tiles, int64_t weights, int64_t weight_bytes) {
  constexpr int64_t kMemoryWeights = int64_t{64} << 20;
  constexpr int64_t kRowsFromMemory = 256;
  if (weight_bytes > kMemoryWeights) return kRowsFromMemory;
  // To take a block and to begin it takes some 0.4 us: with 64 x 64 weights, 96 rows' products take
  // ten times that.
  constexpr int64_t kLeastProducts = int64_t{3} << 19;
  const int64_t rows = std::max(kKernelBlockRows, kLeastProducts / std::max<int64_t>(weights, 1));
  return has_tiles ? 2 * rows : rows;
}

RowChainPlan plan_chain(int64_t rows, const ChainShape& shape, const KernelTuning& tuning,
                        int threads, const MachineRates& rates) {
  RowChainPlan p;
  const ChainSplit split = split_of(rows, shape, tuning, threads);
  p.splits_rows = split.kind == ChainSplit::Kind::rows;
  p.hidden_slices = split.slices;
  if (p.splits_rows) {
    const int64_t most = tuning.block_rows > 0 ? tuning.block_rows : shape.block_rows;
    p.row_unit = unit_of(rows, shape, threads);
    p.blocks = blocks_of(rows, p.row_unit, most, threads);
    const int64_t units = ceil_div(ceil_div(rows, p.row_unit), p.blocks);
    p.block_rows = std::max<int64_t>(1, std::min(rows, units * p.row_unit));
  } else if (split.kind == ChainSplit::Kind::columns) {
    p.row_unit = split.row_groups > 1 ? unit_of(rows, shape, 1) : 1;
    p.blocks = std::min(split.row_groups, ceil_div(rows, p.row_unit));
    p.block_rows = ceil_div(ceil_div(rows, p.row_unit), p.blocks) * p.row_unit;
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
  const int64_t at_once = p.splits_rows ? p.threads : p.hidden_slices > 1 ? p.blocks : 1;
  p.scratch_bytes = shape.widest_row_bytes * p.block_rows * at_once;
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
