// SPDX-License-Identifier: Apache-2.0
// How the threads A, B and C share a row chain of two stages:
//
// clang-format off
//             stage 1          stage 2
//
//   rows      A A A A A A      A A A     each takes blocks of rows through all stages; no barrier
//             B B B B B B      B B B
//             C C C C C C      C C C
//
//   columns   A A B B C C  |   A B C     all take panels of columns of one stage, then of the next;
//             A A B B C C  |   A B C     a barrier after each
//             A A B B C C  |   A B C
//
//   hidden    A A B B C C      A A A     each takes a slice of the hidden columns, of all rows
//             A A B B C C    + B B B     or of a group, from stage 1 right into sums of all of
//             A A B B C C    + C C C     stage 2; these are added up at the end, in slice order
// clang-format on
//
// With few rows columns leave threads without work where a stage has fewer panels than there are
// threads: the second stage of an MLP. Slices keep them all at work.
#pragma once

#include <cstdint>
#include <span>

#include "base/machine.h"

namespace epilogue::cpu {

// A stage as the choice sees it: its weights are `panels` times `panel_columns` columns of depth k.
struct StageSize {
  int64_t panels = 0;
  int64_t panel_columns = 0;  // of all its products
  int64_t k = 0;
  int64_t weight_bytes = 4;  // of one weight
  bool is_bf16 = false;      // its products are: some cores have instructions for them
  bool has_tiles = false;    // and tile products of these rows do them
};

struct ChainSplit {
  enum class Kind : uint8_t { rows, columns, hidden };
  Kind kind = Kind::rows;
  // columns: groups of rows, one after the other; hidden: groups of rows times slices of hidden
  // columns, all at once.
  int64_t row_groups = 1;
  int64_t slices = 1;
};

// Sums of slices per thread that are worth handing over: fewer are added up where they are.
inline constexpr int64_t kSliceSumsPerThread = 16384;

// A pure function of its arguments, of constants alone: it decides the order of sums, and bits
// repeat on every machine. `may_slice`: whether the chain's kernels can; `may_group`: whether its
// rows may be cut where the choice likes.
ChainSplit choose_split(int64_t rows, std::span<const StageSize> stages, int threads,
                        bool may_slice, bool may_group);

// How many threads run what was split so: all, or one where handing work over would cost more than
// it saves. By the machine's rates, for the bits are the same.
int choose_threads(int64_t rows, std::span<const StageSize> stages, const ChainSplit& split,
                   int threads, const MachineRates& rates);

}  // namespace epilogue::cpu
