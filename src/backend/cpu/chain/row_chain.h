// SPDX-License-Identifier: Apache-2.0
// Row chains on the CPU: stages with packed weights, the panel kernels that they run on, and the
// programs that run beside a tile unit's products.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/chain/shared_panels.h"
#include "backend/cpu/column_sums.h"
#include "backend/cpu/simd/panels/kernel_list.h"
#include "backend/cpu/simd/panels/packed_weights.h"
#include "backend/cpu/simd/panels/prefetch.h"
#include "backend/cpu/simd/targets.h"
#include "backend/cpu/tile_program.h"
#include "base/append_list.h"
#include "core/row_chain.h"

namespace epilogue::cpu {

// Throws Error where the stages do not fit each other or a dtype has no kernels.
std::unique_ptr<RowChain> make_row_chain(const RowChainSpec& spec);

class ChainStage {
 public:
  // Throws Error where the stage is malformed. `outputs`: how many the chain has. `int4`: instead
  // of the weights' values, or empty.
  ChainStage(const RowChainSpec::Stage& spec, DType dtype, bool is_last, size_t outputs,
             std::span<const Int4Weight> int4 = {});

  int64_t k() const { return k_; }  // of what it reads: all of a stacked stage's parts
  int64_t n() const { return n_; }
  int products() const { return spec_.stacked ? 1 : static_cast<int>(spec_.weights.size()); }
  int64_t flowing_columns() const { return spec_.flows * n(); }
  const RowChainSpec::Stage& spec() const { return spec_; }
  const TileProgram& program() const { return program_; }
  simd::FloatType weights_type() const;

  // What kernels can do with their sums themselves: product, + bias, + rows, f of that; or f(first
  // product) times the second; and nothing else.
  struct Finish {
    bool is_possible = false;
    bool has_bias = false;    // operand 0, or rows: a call tells by its stride
    bool has_addend = false;  // operand 1, after the bias
    std::optional<PointwiseFn> f = {};
    bool is_gated = false;

    bool relu() const { return f == PointwiseFn::relu; }
    // No more than a bias and the relu: what panel kernels know.
    bool is_simple() const { return is_possible && !is_gated && !has_addend && (!f || relu()); }
  };
  const Finish& finish() const { return finish_; }

  // Packs where nobody did in this layout yet, or a weight was written. Thread-safe.
  const simd::PackedWeights& packed(const simd::PanelLayout& layout,
                                    const simd::Rounding& rounding) const;

 private:
  RowChainSpec::Stage spec_;
  std::vector<Int4Weight> int4_;
  TileProgram program_;
  int64_t k_ = 0;
  int64_t n_ = 0;
  Finish finish_;
  // One for each layout in use.
  mutable AppendList<std::shared_ptr<SharedPanels>> packed_;
};

// The panel kernels of stages, as the list of panel kernels has them.
struct ChainKernels {
  simd::FloatType weights;
  simd::Rounding rounding;
  bool integer_rows = false;
  bool widens = false;  // KernelTuning::widens

  // More than any kernel for few rows serves.
  static constexpr int64_t kManyRows = 1024;

  const simd::PanelKernel& of(int64_t rows) const {
    return simd::choose_panel_kernel({.weights = weights,
                                      .rows = rows,
                                      .precision = rounding.to,
                                      .group = rounding.groups.size,
                                      .integer_rows = integer_rows,
                                      .widens = widens})
        .kernel();
  }

  // No kernel for few rows.
  const simd::PanelKernel& of_many_rows() const { return of(kManyRows); }

  // Rows that the level's widest kernel computes at once, whatever the chain's type: half a tile
  // less for one thread than for another costs more than the ragged end of a smaller tile.
  static int64_t row_unit() {
    return simd::choose_panel_kernel({.weights = simd::FloatType::bf16, .rows = kManyRows})
        .kernel()
        .mr;
  }

  // The instructions as they stand in a chain's name.
  std::string level_name() const {
    const simd::PanelKernel& kernel = of_many_rows();
    return kernel.has_tiles ? kernel.level : target_name(simd::active_target());
  }
};

// Whether to pack rows into strips gains where so many columns read them. To pack takes as long as
// some 30 columns' products, and twice as long beside wide vectors.
inline bool strips_pay(const simd::PanelKernel& kernel, int64_t columns) {
  constexpr int64_t kLeastColumns = 128;
  constexpr int64_t kLeastWideColumns = 768;
  return kernel.strips.product != nullptr && kernel.layout.weight_bytes == 4 &&
         columns >= (kernel.strips.by_sums ? kLeastColumns : kLeastWideColumns);
}

// Rows as a stage's kernel wants them.
struct StageRows {
  const void* data = nullptr;
  int64_t stride = 0;
  const float* scales = nullptr;  // of integers: one per row
  // Of integers, where the kernel wants them: running sums before every `sum_unit` of k.
  const int32_t* sums = nullptr;
  int64_t sums_stride = 0;
  int64_t sum_unit = 1;
  simd::TiledRows tiles = {};  // instead of all that, where reads_tiles()
  // Strips of f32 (simd::StripFunctions) instead of rows: those of some columns of all rows, then
  // those of the next ones: of chunk_of_k(), or of sum_depth() `by_sums`. `stride`: the rows that
  // the strips have room for.
  bool in_strips = false;
};

// What a stage makes for the next one: rows as its kernel reads them.
struct StageFlow {
  MatrixView rows = {};
  simd::TiledRows tiles = {};
  int64_t column = 0;  // of the stage, that is the first of `tiles`

  bool is_there() const { return rows.data != nullptr || tiles.data != nullptr; }
  StageRows read() const { return {.data = rows.data, .stride = rows.row_stride, .tiles = tiles}; }
};

// A stage in one call, the same for all threads: what it runs on, and what the chain's call gave.
struct StageCall {
  const ChainStage* stage = nullptr;
  const simd::PackedWeights* weights = nullptr;
  const simd::PanelKernel* kernel = nullptr;
  int64_t padded_k = 0;      // what the kernel reads of a row
  int64_t overlap_rows = 0;  // from so many rows on programs run beside its products; 0: never
  bool prefetches = true;    // the panel after the one in use
  bool tiles = false;        // its rows are tiled, where there are enough of them
  bool strips = false;       // the same: they are packed into strips
  // The result exceeds the caches: it is written past them.
  bool is_large = false;
  const void* next = nullptr;  // weights that are read after the last panel's; null: not known
  std::span<const MatrixView> operands;
  std::span<const MatrixView> outputs;  // of the chain; row 0 is the call's first
  std::span<const ColumnSums> sums;     // by output, of those that are column sums
};

// Rows [row, row + m) of the call through the panels [first, last): products, program, stores.
// `a` are these rows. `flow`: what the next stage reads, whose row 0 is the block's first; without
// one the results go to output 0. Safe from several threads on ranges that do not overlap; where
// columns are summed, blocks of rows begin at multiples of kColumnSumRows.
void run_stage(const StageCall& call, const StageFlow& flow, const StageRows& a, int64_t row,
               int64_t m, int64_t first, int64_t last);

// The two halves of run_stage() for stages of one product, apart: rows times k in [begin, end)
// alone into [panels][panel_stride] sums ...
void multiply_slice(const StageCall& call, const StageRows& a, int64_t m, int64_t begin,
                    int64_t end, float* sums, int64_t panel_stride);
// ... and the program and the stores over one panel's sums [m][columns of a panel].
void finish_panel(const StageCall& call, int64_t row, int64_t m, int64_t panel, float* sums);

// Whether m rows are tiled for the stage's kernel (run_stage() as tile_stage.h has it).
inline bool reads_tiles(const StageCall& stage, int64_t m) {
  const int64_t most_k = stage.kernel->layout.most_k;
  return stage.tiles && m >= simd::kLeastTileRows && (most_k == 0 || stage.padded_k <= most_k);
}

// Whether m rows are packed into strips for it: fewer do not hide the next panel's fetch.
inline bool reads_strips(const StageCall& stage, int64_t m) {
  return stage.strips && m >= simd::kLeastPieces * stage.kernel->mr;
}

// Columns of k whose weights of one panel stay in L2 while m rows pass.
int64_t chunk_of_k(const StageCall& stage, int64_t m);

// Rows that a stage reads, or that its integers are made of (rows_for_kernel()), in memory of the
// chain's: their type, their stride in elements where they are not tiled, and the floats that m of
// them take.
simd::FloatType rows_type(const StageCall& stage);
int64_t rows_stride(const StageCall& stage);
int64_t rows_floats(const StageCall& stage, int64_t m);
// m rows at `memory`, for the caller to fill.
StageRows rows_at(const StageCall& stage, int64_t m, float* memory);
// Fills one of them from k elements of `type`, and zeros.
void set_row(const StageCall& stage, const StageRows& rows, int64_t row, simd::FloatType type,
             const void* from);
// m rows as the stage's kernel reads them: as they are, or in strips or as integers in memory of
// this thread, until its next call.
StageRows rows_for_kernel(const StageCall& stage, const StageRows& rows, int64_t m,
                          int threads = 1);
// What a stage stores for the next one: m rows of it at `memory`, whose padding is cleared here.
StageFlow stage_flow(const StageCall& stage, const StageCall& next, int64_t m, float* memory);

// The program over one block of sums, done while the products of the next block run.
//
// A tile unit multiplies by itself; while it does, the vector units are idle. The sums of a block
// of rows wait in one of two areas, small enough for L1, and its program runs in pieces between the
// products of the block after it: of the same panel, or of the next one.

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
