// SPDX-License-Identifier: Apache-2.0
// The program over one block of sums, done while the products of the next block run.
//
// A tile unit multiplies by itself; while it does, the vector units are idle. The sums of a block
// of rows wait in one of two areas, small enough for L1, and its program runs in pieces between the
// products of the block after it: of the same panel, or of the next one.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "backend/cpu/simd/panels/kernel.h"

namespace epilogue::cpu {

// Rows whose sums are ready. Product p of row i lies at sums[p] + i * columns of a panel.
struct ReadyRows {
  int64_t panel = 0;
  int64_t row = 0;
  int64_t rows = 0;
  std::array<float*, 2> sums{};
};

class StageOverlap final : public simd::PanelWork {
 public:
  // Elements of a piece: some 400 instructions, so that a core's reordering window has products
  // beside them all the time.
  static constexpr int64_t kPieceElements = 256;

  // `columns` of a panel, of each of its `products`. Calls `finish` for all rows of all panels,
  // panel after panel and rows in order, at most `most_rows` at a time.
  StageOverlap(float* memory, int64_t columns, int products, int64_t most_rows,
               std::function<void(const ReadyRows&)> finish)
      : columns_(columns),
        piece_rows_(std::clamp<int64_t>(kPieceElements / columns, 1, most_rows)),
        finish_(std::move(finish)) {
    for (size_t area = 0; area < 2; ++area)
      for (size_t p = 0; p < 2; ++p)
        areas_[area][p] =
            memory + (static_cast<int64_t>(area) * products + static_cast<int64_t>(p) % products) *
                         kBlockRows * columns;
  }
  static int64_t floats(int64_t columns, int products) {
    return 2 * kBlockRows * columns * products;
  }

  // The kernel's next calls are of this panel.
  void begin_panel(int64_t panel) { panel_ = panel; }

  std::array<float*, 2> begin(int64_t row, int64_t rows) override {
    do_all();
    ready_ = std::exchange(begun_, {panel_, row, rows, areas_[area_]});
    area_ = 1 - area_;
    return begun_.sums;
  }
  int64_t pieces() const override { return (ready_.rows + piece_rows_ - 1) / piece_rows_; }
  void do_piece() override {
    ReadyRows piece = ready_;
    piece.rows = std::min(piece_rows_, ready_.rows);
    finish_(piece);
    ready_.row += piece.rows;
    ready_.rows -= piece.rows;
    for (float*& sums : ready_.sums) sums += piece.rows * columns_;
  }

  // After the last call of the kernel: what no products are left to hide.
  void end() {
    do_all();
    ready_ = std::exchange(begun_, {});
    do_all();
  }

 private:
  void do_all() {
    while (pieces() > 0) do_piece();
  }

  int64_t columns_;
  int64_t piece_rows_;
  std::function<void(const ReadyRows&)> finish_;
  std::array<std::array<float*, 2>, 2> areas_{};  // by area and product
  size_t area_ = 0;
  int64_t panel_ = 0;
  ReadyRows begun_;  // what the kernel works on
  ReadyRows ready_;  // the block before it, as far as it is left
};

}  // namespace epilogue::cpu
