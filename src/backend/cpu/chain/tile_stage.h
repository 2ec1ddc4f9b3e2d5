// SPDX-License-Identifier: Apache-2.0
// Stages of row chains on tiled rows: run_stage() and its two halves where reads_tiles().
#pragma once

#include "backend/cpu/chain/row_chain.h"

namespace epilogue::cpu {

// m rows of k elements of two bytes at `memory`, of TiledRows::bytes_of() bytes. `group_steps`: for
// weights that are unpacked, steps of one of their groups; 0: for others.
simd::TiledRows tiled_rows(int64_t m, int64_t k, float* memory, int64_t group_steps = 0);

// As run_stage(); the rows are tiles.rows.
// `row_scales`: of rows of integers; null: they are bf16.
void run_tile_stage(const StageCall& call, const StageFlow& flow, const simd::TiledRows& tiles,
                    const float* row_scales, int64_t row, int64_t first, int64_t last);

// Blocks of columns of a stage's sums, and the floats that those of m rows take.
int64_t tile_blocks_of(const StageCall& call);
int64_t tile_sums_floats(const StageCall& call, int64_t m);
// Products alone, with k from `begin` on, into [blocks][panels][32 x 32] sums ...
void multiply_tile_slice(const StageCall& call, const simd::TiledRows& tiles, int64_t begin,
                         float* sums);
// ... and the program and the stores over one block's sums of rows [row, row + m).
void finish_tile_block(const StageCall& call, int64_t row, int64_t m, int64_t block, float* sums);

}  // namespace epilogue::cpu
