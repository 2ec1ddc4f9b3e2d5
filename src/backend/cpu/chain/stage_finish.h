// SPDX-License-Identifier: Apache-2.0
// What becomes of a stage's sums: its program and its stores, some rows of a block of columns at a
// time.
#pragma once

#include <optional>

#include "backend/cpu/chain/row_chain.h"

namespace epilogue::cpu {

class StageFinish {
 public:
  // Rows from `row` of the call on; blocks of `columns` of each product. The arguments outlive it.
  StageFinish(const StageCall& call, const StageFlow& flow, int64_t row, int64_t columns);

  // As many rows as leave all buffers of the program in L1, and these buffers.
  int64_t most_rows() const { return most_rows_; }
  int64_t buffer_floats() const { return program_.buffers() * most_rows_ * columns_; }

  // ReadyRows::panel counts blocks. At most most_rows(); `memory`: buffer_floats().
  void rows(const ReadyRows& ready, float* memory) const;

  // Where the results of a block go, from the first row of a panel of 32 on, if all there is to do
  // is what ChainStage::Finish says. `bias`: of its columns, if it is not taken where it lies.
  std::optional<simd::PanelStore> place(int64_t block, const float* bias, int64_t panel = 0) const;
  // The same for kernels that can do no more than to add a bias and take the relu.
  std::optional<simd::PanelStore> in_registers(int64_t block, const float* bias,
                                               int64_t panel = 0) const;
  // Whether the operand that is added last has a row for each of the result's.
  bool adds_rows() const { return addend_ != nullptr; }
  // Its element where `to` begins, if it lies as `to` does; null: it does not, or there is none.
  const uint16_t* rows_to_add(int64_t block, const simd::PanelStore& to, int64_t panel) const;
  // Whether a bias must be made for whole blocks in f32, once for all of a call's.
  bool widens_bias() const;
  // Of blocks [first, last), at `memory`.
  void widen_bias(int64_t first, int64_t last, float* memory) const;

 private:
  const MatrixView& bias_operand() const;
  std::optional<simd::WriteBack> write_back(const TileBounds& block) const;
  void store(size_t o, const TileBounds& block, const float* tile) const;
  void store_tiled(const TileBounds& place, const float* tile) const;

  const StageCall& call_;
  const simd::PackedWeights& weights_;
  const TileProgram& program_;
  const StageFlow& flow_;
  const int64_t row_;
  const int64_t columns_;
  const int64_t most_rows_;
  const MatrixView* const addend_;  // null: adds_rows() is false
};

}  // namespace epilogue::cpu
