// SPDX-License-Identifier: Apache-2.0
// One stage of a row chain: its weights as panels, its program as tiles, and the loops over both.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "backend/cpu/chain/shared_panels.h"
#include "backend/cpu/column_sums.h"
#include "backend/cpu/simd/panels/kernel.h"
#include "backend/cpu/simd/panels/packed_weights.h"
#include "backend/cpu/tile_program.h"
#include "base/append_list.h"
#include "core/row_chain.h"

namespace epilogue::cpu {

class ChainStage {
 public:
  // Throws Error where the stage is malformed. `outputs`: how many the chain has.
  ChainStage(const RowChainSpec::Stage& spec, DType dtype, bool is_last, size_t outputs);

  int64_t k() const { return k_; }  // of what it reads: all of a stacked stage's parts
  int64_t n() const { return spec_.weights[0].size(0); }
  int products() const { return spec_.stacked ? 1 : static_cast<int>(spec_.weights.size()); }
  int64_t flowing_columns() const { return spec_.flows * n(); }
  const RowChainSpec::Stage& spec() const { return spec_; }
  const TileProgram& program() const { return program_; }
  simd::FloatType weights_type() const;

  // What kernels can finish in registers: product, + bias, relu of that, and nothing else.
  struct Finish {
    bool is_possible = false;
    bool has_bias = false;  // operand 0
    bool relu = false;
  };
  const Finish& finish() const { return finish_; }

  // Packs where nobody did in this layout yet, or a weight was written. Thread-safe.
  const simd::PackedWeights& packed(const simd::PanelLayout& layout,
                                    simd::Precision precision) const;

 private:
  RowChainSpec::Stage spec_;
  TileProgram program_;
  int64_t k_ = 0;
  Finish finish_;
  // One for each layout in use.
  mutable AppendList<std::shared_ptr<SharedPanels>> packed_;
};

// Rows as a stage's kernel wants them.
struct StageRows {
  const void* data = nullptr;
  int64_t stride = 0;
  const float* scales = nullptr;  // of 16-bit integers: one per row
};

// A stage in one call, the same for all threads.
struct StageCall {
  const ChainStage* stage = nullptr;
  const simd::PackedWeights* weights = nullptr;
  const simd::PanelKernel* kernel = nullptr;
  int64_t padded_k = 0;      // what the kernel reads of a row
  int64_t overlap_rows = 0;  // from so many rows on programs run beside its products; 0: never
  bool prefetches = true;    // the panel after the one in use
};

// Where a stage's results go.
struct StageTargets {
  MatrixView flow;  // what the next stage reads; row 0 is the block's first
  std::span<const MatrixView> operands;
  std::span<const MatrixView> outputs;  // of the chain; row 0 is the call's first
  std::span<const ColumnSums> sums;     // by output, of those that are column sums
};

// Rows [row, row + m) of the call through the panels [first, last): products, program, stores.
// `a` are these rows. Safe from several threads on ranges that do not overlap; where columns are
// summed, blocks of rows begin at multiples of kColumnSumRows.
void run_stage(const StageCall& call, const StageTargets& targets, const StageRows& a, int64_t row,
               int64_t m, int64_t first, int64_t last);

// The two halves of run_stage() for stages of one product, apart: rows times k in [begin, end)
// alone into [panels][panel_stride] sums ...
void multiply_slice(const StageCall& call, const StageRows& a, int64_t m, int64_t begin,
                    int64_t end, float* sums, int64_t panel_stride);
// ... and the program and the stores over one panel's sums [m][columns of a panel].
void finish_panel(const StageCall& call, const StageTargets& targets, int64_t row, int64_t m,
                  int64_t panel, float* sums);

}  // namespace epilogue::cpu
