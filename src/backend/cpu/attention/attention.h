// SPDX-License-Identifier: Apache-2.0
// What the kernels of attention share.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "backend/cpu/simd/panels/attention_tiles.h"
#include "backend/cpu/simd/scratch.h"
#include "base/thread_pool.h"
#include "core/attention.h"

namespace epilogue::cpu {

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// The kernel over panels, for all dtypes.
std::unique_ptr<FusedKernel> make_panel_attention(const AttentionSpec& spec);
// The kernel that reads keys and values in place; null where a spec has too many queries.
std::unique_ptr<FusedKernel> make_direct_attention(const AttentionSpec& spec);
// The kernel over tiles; null where it does not serve the spec, or not on this machine.
std::unique_ptr<FusedKernel> make_tile_attention(const AttentionSpec& spec);

// The address of row r.
char* row_address(const MatrixView& view, int64_t r);
// The matrix whose row 0 is row r, for rows of one stride: those of an item of the batch.
MatrixView matrix_from(const MatrixView& view, int64_t r);

// body(unit) for each unit, on several threads if `threads` is above 1.
void run_units(int threads, int64_t units, FunctionRef<void(int64_t)> body);

// A row's maximum after `found`, and what its sums and values are to be multiplied by. NaN wins,
// and stays.
struct Follow {
  Follow(float max, float found);
  float next;
  float shift;   // next, or 0: scores that are all -inf so far give p that are 0, not NaN
  float factor;  // e^(max - next)
};
// A row of scores becomes p = e^(s - max), with its running maximum and sum. Returns what the row's
// values so far are to be multiplied by.
float make_probabilities(float* scores, int64_t keys, float& max, float& sum);
// A row of a mask, as load_tile() reads it, on a row of scores.
void add_mask_row(DType dtype, const float* mask, int64_t keys, float* scores);

// Threads that pay, of at most so many pieces of work; a score costs `score_ns` beside its share
// of the products, which run at `flops_per_ns`.
int attention_threads(const AttentionSpec& spec, int64_t pieces, double flops_per_ns,
                      double score_ns);

// Pieces that each item's `blocks` of queries are cut into: one where the batch alone gives every
// thread some.
int64_t attention_groups(const AttentionSpec& spec, int64_t blocks, int threads);

// What blocks of queries see of blocks of keys.
class KeyMask {
 public:
  // `mask`: the operand; null: there is none. Masks of floats are not looked at.
  KeyMask(const AttentionSpec& spec, const MatrixView* mask, int64_t query_rows, int64_t block_keys,
          int threads);

  // One for each block of keys; null: `some` where there is a mask, else `all`. Limits of causal
  // attention are not among them.
  const simd::KeysSeen* blocks(int64_t item, int64_t query_block) const;
  // Keys that some of the rows [row, row + rows) may see: all, or as many as the last does.
  static int64_t limit(const AttentionSpec& spec, int64_t row, int64_t rows);

 private:
  int64_t query_blocks_;
  int64_t key_blocks_;
  std::vector<int64_t> matrix_of_;  // by item: which mask it has
  std::vector<simd::KeysSeen> seen_;
};

// Keys and values that a thread packed, to be used by the next piece of its work where that has the
// same: items of a group, and parts of one item.
class PackedKeys {
 public:
  // Memory of the last call's: what is in it is of these keys and values if `is_packed`.
  struct Place {
    float* memory;
    bool is_packed;
  };
  Place find(uint64_t run, const void* keys, const void* values, int64_t floats);

 private:
  simd::Scratch scratch_;
  float* memory_ = nullptr;
  uint64_t run_ = 0;
  const void* keys_ = nullptr;
  const void* values_ = nullptr;
};
// This thread's.
PackedKeys& packed_keys();
// A number of its own for each run of a kernel, never 0.
uint64_t next_attention_run();

}  // namespace epilogue::cpu
