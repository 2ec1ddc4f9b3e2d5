// SPDX-License-Identifier: Apache-2.0
// How one call of a row chain is cut: blocks of rows, slices of hidden columns, threads.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cpu/chain/chain_split.h"
#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "core/row_chain.h"

namespace epilogue::cpu {

// What the plan needs to know of a chain.
struct ChainShape {
  std::vector<StageSize> stages;
  bool may_slice = false;  // its kernels can take slices of the hidden columns
  bool may_group = true;   // its rows may be cut anywhere
  int64_t block_rows = 0;  // that the level in use likes
  int64_t shared_rows =
      0;                  // that all threads better take together; 0: each takes blocks of its own
  int64_t row_unit = 1;   // that a share of few rows ends at a multiple of
  int64_t tile_rows = 1;  // the same of a share of many: what its kernels compute at once
  int64_t widest_row_bytes = 0;  // of what lies between stages
  int64_t result_columns = 0;
};

// The rows that a chain's kernels like at a time. `has_tiles`: they are tile instructions, which
// use up a panel sooner and get more rows to do with it. All kernels get more where weights exceed
// an L3 and come from memory once per block, and where `weights` are so few that a block's own cost
// would show.
int64_t likely_block_rows(bool has_tiles, int64_t weights, int64_t weight_bytes);

// By constants where sums are concerned, by the machine's rates where only time is.
RowChainPlan plan_chain(int64_t rows, const ChainShape& shape, const KernelTuning& tuning,
                        int threads, const MachineRates& rates);

// Rows [first, last) of block `index` of `blocks`. All but the last end at a multiple of `unit`:
// rows left over in a tile cost as much as a whole one.
struct RowRange {
  int64_t first;
  int64_t last;
};
RowRange rows_of_block(int64_t rows, int64_t unit, int64_t blocks, int64_t index);

// A new key for recall_plan().
uint64_t next_plan_key();

// The plan of `key` for so many rows, of this thread's last call with that key if nothing changed
// since (rows, level, threads, rates), else by `make(rows)`. Valid until the thread's next call.
const RowChainPlan& recall_plan(uint64_t key, int64_t rows,
                                FunctionRef<RowChainPlan(int64_t)> make);

}  // namespace epilogue::cpu
