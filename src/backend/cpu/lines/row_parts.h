// SPDX-License-Identifier: Apache-2.0
// Reductions of rows to something that is made of pieces and joined in their order: the result does
// not depend on the number of threads.
#pragma once

#include <vector>

#include "backend/cpu/rows.h"

namespace epilogue::cpu {

// How rows are cut. Rows of one piece are taken `at_once` together (which helps where neighbours in
// a row are far apart); longer ones piece by piece.
struct RowParts {
  static constexpr int64_t kFewRows = 16;      // threads share the pieces of a row
  static constexpr int64_t kGathered = 16384;  // floats of a row that is gathered whole

  int64_t rows;
  int64_t piece;
  int64_t pieces;   // of a row
  int64_t at_once;  // rows
  int64_t grain;    // blocks of `at_once` rows, or pieces where those are shared

  explicit RowParts(const Rows& x) : rows(x.count()) {
    const bool gathers = x.block() > 1 && x.size() <= kGathered;
    piece = gathers ? x.size() : std::min(x.size(), kRowPiece);
    pieces = piece == 0 ? 1 : (x.size() + piece - 1) / piece;
    at_once = gathers ? x.block() : 1;
    grain = grain_for(shares_pieces() ? piece : at_once * x.size());
  }
  bool shares_pieces() const { return pieces > 1 && rows < kFewRows; }
  int64_t blocks() const { return (rows + at_once - 1) / at_once; }
  int64_t items() const { return shares_pieces() ? rows * pieces : blocks(); }
};

// Per row: make(data, begin, n) of each piece, join(total, part) of the pieces in order, then
// finish(row, total).
template <class Make, class Join, class Finish>
void reduce_rows(const Rows& x, Make&& make, Join&& join, Finish&& finish) {
  const RowParts parts(x);
  const auto part_of = [&](int64_t row, int64_t p, float* buffer) {
    const int64_t begin = p * parts.piece;
    const int64_t n = std::min(parts.piece, x.size() - begin);
    return make(x.read(row, begin, n, buffer), begin, n);
  };
  if (parts.shares_pieces()) {
    std::vector<decltype(make(nullptr, 0, 0))> made(static_cast<size_t>(parts.items()));
    parallel_for(parts.items(), parts.grain, [&](int64_t begin, int64_t end) {
      float* buffer = scratch(Slot::a, parts.piece);
      for (int64_t i = begin; i < end; ++i)
        made[static_cast<size_t>(i)] = part_of(i / parts.pieces, i % parts.pieces, buffer);
    });
    for (int64_t row = 0; row < parts.rows; ++row) {
      auto total = made[static_cast<size_t>(row * parts.pieces)];
      for (int64_t p = 1; p < parts.pieces; ++p)
        join(total, made[static_cast<size_t>(row * parts.pieces + p)]);
      finish(row, total);
    }
    return;
  }
  parallel_for(parts.items(), parts.grain, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * parts.at_once;
      const int64_t k = std::min(parts.at_once, parts.rows - first);
      if (parts.pieces == 1) {
        const auto rows = x.read_rows(first, k, scratch(Slot::a, k * x.pitch()));
        for (int64_t r = 0; r < k; ++r) finish(first + r, make(rows.row(r), 0, x.size()));
        continue;
      }
      float* buffer = scratch(Slot::a, parts.piece);
      auto total = part_of(first, 0, buffer);
      for (int64_t p = 1; p < parts.pieces; ++p) join(total, part_of(first, p, buffer));
      finish(first, total);
    }
  });
}

inline void describe_rows(const Rows& x, KernelInfo& info) {
  const RowParts parts(x);
  describe_items(info, parts.items(), parts.grain, parts.piece, parts.at_once);
}

}  // namespace epilogue::cpu
