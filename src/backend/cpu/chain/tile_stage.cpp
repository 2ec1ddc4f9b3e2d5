// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/chain/tile_stage.h"

#include <algorithm>
#include <array>

#include "backend/cpu/chain/stage_finish.h"
#include "backend/cpu/simd/panels/bf16_pairs.h"
#include "backend/cpu/simd/panels/block_lines.h"
#include "backend/cpu/simd/panels/group_columns.h"
#include "backend/cpu/simd/panels/w8a8.h"
#include "backend/cpu/simd/scratch.h"
#include "base/ceil_div.h"

namespace epilogue::cpu {
namespace {

using simd::kBlockSums;
using simd::kTileBlock;
using simd::PackedWeights;
using simd::TileArgs;
using simd::TiledRows;

thread_local simd::Scratch tile_stage_scratch;

int64_t block_columns(const StageCall& call) { return kTileBlock / call.weights->products(); }

// The program over a block's sums, or what stores them, beside the products of the next block.
class TileFinish final : public simd::TileWork {
 public:
  // `row_scales`: of integer products; null: the sums are f32.
  TileFinish(const StageCall& call, const StageFlow& flow, const float* row_scales, int64_t row,
             int64_t m)
      : finish_(call, flow, row, block_columns(call)),
        weights_(*call.weights),
        row_scales_(row_scales),
        columns_(block_columns(call)),
        m_(m),
        piece_rows_(
            std::clamp<int64_t>(StageOverlap::kPieceElements / columns_, 1, finish_.most_rows())) {
    const ChainStage::Finish& finish = call.stage->finish();
    if (finish.is_possible)
      finish_lines_ = finish.is_gated ? simd::gated_lines(*finish.f) : simd::plain_lines(finish.f);
    first_group_ = simd::group_lines(weights_.products(), row_scales != nullptr, true);
    next_group_ = simd::group_lines(weights_.products(), row_scales != nullptr, false);
    is_flow_ = flow.is_there();
    is_large_ = call.is_large;
  }

  // The floats of so many blocks.
  int64_t floats(int64_t blocks) const {
    return kBlockSums + finish_.buffer_floats() + (finish_.widens_bias() ? blocks * columns_ : 0);
  }
  // For blocks [first, last).
  void set_memory(float* memory, int64_t first, int64_t last) {
    sums_ = memory;
    buffers_ = memory + kBlockSums;
    first_ = first;
    if (!finish_.widens_bias()) return;
    bias_ = buffers_ + finish_.buffer_floats();
    finish_.widen_bias(first, last, bias_);
  }

  float* sums() override { return sums_; }
  int64_t ready(int64_t block, int64_t panel) override {
    if (row_scales_ != nullptr) take_scales(block);
    return set_block(block, panel, sums_);
  }
  int64_t ready_group(int64_t block, int64_t panel, const simd::GroupSums& group) override {
    group_scales_ = group.scales;
    totals_ = group.is_first ? nullptr : group.totals;
    if (group.is_last) return set_block(block, panel, sums_);
    const int64_t row = panel * kTileBlock;
    line_function = group.is_first ? first_group_ : next_group_;
    lines.sums = sums_;
    lines.scales = group.scales;
    lines.row_scales = row_scales_ == nullptr ? nullptr : row_scales_ + row;
    lines.totals = group.totals;
    return std::min(kTileBlock, m_ - row);
  }
  int64_t pieces() const override { return ceil_div(ready_.rows, piece_rows_); }
  void do_piece() override {
    ReadyRows piece = ready_;
    piece.rows = std::min(piece_rows_, ready_.rows);
    if (column_scales() != nullptr) scale(piece);
    if (store_) {
      simd::store_rows(*store_, piece.sums[0], columns_, row_of_panel_, piece.rows);
    } else {
      finish_.rows(piece, buffers_);
    }
    row_of_panel_ += piece.rows;
    ready_.row += piece.rows;
    ready_.rows -= piece.rows;
    for (float*& sums : ready_.sums) sums += piece.rows * columns_;
  }

  // A block whose sums lie at `sums`, at once.
  void finish_block(int64_t block, int64_t panel, float* sums) {
    if (const int64_t rows = set_block(block, panel, sums); rows > 0)
      return line_function(lines, 0, rows);
    while (ready_.rows > 0) do_piece();
  }

 private:
  int64_t set_block(int64_t block, int64_t panel, float* sums) {
    const int64_t row = panel * kTileBlock;
    const int64_t rows = std::min(kTileBlock, m_ - row);
    const float* const bias = bias_ == nullptr ? nullptr : bias_ + (block - first_) * columns_;
    ready_.rows = 0;
    line_function = finish_lines_;
    if (line_function != nullptr) {
      const auto place = finish_.place(block, bias, panel);
      const uint16_t* const addend = place ? finish_.rows_to_add(block, *place, panel) : nullptr;
      if (place && place->type == simd::FloatType::bf16 &&
          (addend != nullptr || !finish_.adds_rows())) {
        lines = {sums, place->bias, static_cast<uint16_t*>(place->out), place->stride,
                 place->columns};
        lines.addend = addend;
        lines.scales = column_scales();
        if (row_scales_ != nullptr) lines.row_scales = row_scales_ + row;
        lines.totals = totals_;
        // The flow's lines were written a moment ago, the result's may lie in memory.
        if (!is_flow_) simd::choose_stores(lines, is_large_, rows);
        return rows;
      }
    }
    ready_ = {block, row, rows, {sums, sums + kTileBlock * columns_}};
    row_of_panel_ = 0;
    store_ = finish_.in_registers(block, bias, panel);
    return 0;
  }

  // The columns' scales in the order of a block's sums.
  void take_scales(int64_t block) {
    const int64_t blocks_of_panel = weights_.layout().width / kTileBlock;
    const float* const from =
        weights_.scales(block / blocks_of_panel) + block % blocks_of_panel * columns_;
    for (int64_t p = 0; p < weights_.products(); ++p)
      std::copy_n(from + p * weights_.columns_per_panel(), columns_, scales_.data() + p * columns_);
  }
  void scale(const ReadyRows& rows) const {
    for (int64_t p = 0; p < weights_.products(); ++p) {
      float* const sums = rows.sums[static_cast<size_t>(p)];
      const float* const totals = totals_ == nullptr ? nullptr : totals_ + (sums - sums_);
      if (row_scales_ == nullptr) {
        for (int64_t i = 0; i < rows.rows * columns_; ++i) {
          const float value = sums[i] * column_scales()[p * columns_ + i % columns_];
          sums[i] = totals == nullptr ? value : totals[i] + value;
        }
        continue;
      }
      simd::w8a8_kernels().finish({reinterpret_cast<const int32_t*>(sums), columns_, rows.rows,
                                   columns_, row_scales_ + rows.row, column_scales() + p * columns_,
                                   totals, sums, columns_});
    }
  }

  // Of the block at hand; null: it has none.
  const float* column_scales() const {
    if (group_scales_ != nullptr) return group_scales_;
    return row_scales_ == nullptr ? nullptr : scales_.data();
  }

  const StageFinish finish_;
  const PackedWeights& weights_;
  simd::LineFunction finish_lines_ = nullptr;
  simd::LineFunction first_group_ = nullptr;
  simd::LineFunction next_group_ = nullptr;
  const float* row_scales_;
  // Of the last group: its columns' scales, and the sums of those before.
  const float* group_scales_ = nullptr;
  float* totals_ = nullptr;
  alignas(64) std::array<float, kTileBlock> scales_{};
  const int64_t columns_;
  const int64_t m_;
  const int64_t piece_rows_;
  bool is_flow_ = false;
  bool is_large_ = false;
  float* sums_ = nullptr;
  float* buffers_ = nullptr;
  float* bias_ = nullptr;
  int64_t first_ = 0;
  // Where a block does not become lines: as far as it is left, by a kernel's store or the program.
  ReadyRows ready_;
  int64_t row_of_panel_ = 0;
  std::optional<simd::PanelStore> store_;
};

TileArgs args_of(const StageCall& call, const TiledRows& tiles, int64_t begin) {
  TileArgs args;
  args.rows = tiles;
  if (call.weights->layout().has_tiles) args.weights = call.weights->tiles(begin);
  args.products = call.weights->products();
  args.is_from_memory =
      simd::come_from_memory(call.weights->panels() * call.weights->panel_bytes(call.padded_k));
  return args;
}

simd::GroupColumns unpacked_columns_of(const StageCall& call, const TiledRows& rows) {
  const PackedWeights& weights = *call.weights;
  return {weights.groups(), weights.panel(0, 0), weights.panel_bytes(call.padded_k),
          weights.products(),
          call.kernel->layout.row_bytes == 1 ? simd::TileForm::bytes
                                             : simd::choose_pairs(weights.groups(), rows.panels())};
}

}  // namespace

TiledRows tiled_rows(int64_t m, int64_t k, float* memory, int64_t group_steps) {
  const int64_t steps = ceil_div(k, simd::kTileK);
  // Beside the columns in use stand those that are unpacked meanwhile.
  const int64_t depth =
      group_steps > 0 ? simd::tile_depth(steps, group_steps, 2) : simd::tile_depth(steps);
  return {reinterpret_cast<uint16_t*>(memory), m, steps, depth};
}

void run_tile_stage(const StageCall& call, const StageFlow& flow, const TiledRows& tiles,
                    const float* row_scales, int64_t row, int64_t first, int64_t last) {
  const int64_t blocks_of_panel = call.weights->layout().width / kTileBlock;
  TileArgs args = args_of(call, tiles, 0);
  args.first = first * blocks_of_panel;
  args.last = std::min(last * blocks_of_panel, tile_blocks_of(call));
  args.overlaps = call.overlap_rows > 0;
  if (call.prefetches && call.weights->layout().has_tiles)
    args.next =
        last < call.weights->panels() ? args.weights.at(last * blocks_of_panel, 0) : call.next;
  std::optional<simd::GroupColumns> columns;
  if (call.weights->layout().has_groups) {
    columns.emplace(unpacked_columns_of(call, tiles));
    args.columns = &*columns;
    args.group_steps = columns->group_steps();
  }
  const int64_t waiting = simd::choose_blocks(args);
  const int64_t unpacked = columns ? simd::GroupColumns::floats(tiles.depth) : 0;
  TileFinish work(call, flow, row_scales, row, tiles.rows);
  float* const memory = tile_stage_scratch.get(
      static_cast<size_t>(waiting + unpacked + work.floats(args.last - args.first)));
  args.waiting = memory;
  if (columns) columns->set_memory(memory + waiting, tiles.depth);
  work.set_memory(memory + waiting + unpacked, args.first, args.last);
  args.work = &work;
  call.kernel->tiles(args);
  if (call.is_large) simd::end_streams();
}

int64_t tile_blocks_of(const StageCall& call) {
  return ceil_div(call.weights->n(), block_columns(call));
}

int64_t tile_sums_floats(const StageCall& call, int64_t m) {
  return tile_blocks_of(call) * TiledRows::panels_of(m) * kBlockSums;
}

void multiply_tile_slice(const StageCall& call, const TiledRows& tiles, int64_t begin,
                         float* sums) {
  TileArgs args = args_of(call, tiles, begin);
  args.last = tile_blocks_of(call);
  const int64_t waiting = simd::choose_blocks(args);
  args.waiting = tile_stage_scratch.get(static_cast<size_t>(waiting));
  args.sums = sums;
  call.kernel->tiles(args);
}

void finish_tile_block(const StageCall& call, int64_t row, int64_t m, int64_t block, float* sums) {
  const StageFlow flow;
  TileFinish work(call, flow, nullptr, row, m);
  work.set_memory(tile_stage_scratch.get(static_cast<size_t>(work.floats(1))), block, block + 1);
  for (int64_t panel = 0; panel < TiledRows::panels_of(m); ++panel)
    work.finish_block(block, panel, sums + panel * kBlockSums);
}

}  // namespace epilogue::cpu
