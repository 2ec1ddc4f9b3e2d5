// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/chain/stage_finish.h"

#include <algorithm>

#include "backend/cpu/float_type.h"
#include "backend/cpu/simd/panels/bf16_pairs.h"
#include "backend/cpu/simd/panels/write_back.h"
#include "backend/cpu/tile_io.h"

namespace epilogue::cpu {
namespace {

// A program's buffers stay within L1.
constexpr int64_t kStageTileBytes = 20 << 10;
constexpr int64_t kMaxTileRows = 48;

// The operand with rows that a stage adds last.
const MatrixView* rows_added(const StageCall& call) {
  const ChainStage::Finish& finish = call.stage->finish();
  if (!finish.has_bias) return nullptr;
  const MatrixView& last =
      call.operands[static_cast<size_t>(call.stage->spec().operands[finish.has_addend ? 1 : 0])];
  return finish.has_addend || last.row_stride != 0 ? &last : nullptr;
}

}  // namespace

StageFinish::StageFinish(const StageCall& call, const StageFlow& flow, int64_t row, int64_t columns)
    : call_(call),
      weights_(*call.weights),
      program_(call.stage->program()),
      flow_(flow),
      row_(row),
      columns_(columns),
      most_rows_(std::clamp<int64_t>(
          kStageTileBytes / (program_.buffers() * columns * int64_t{sizeof(float)}), 1,
          kMaxTileRows)),
      addend_(rows_added(call)) {}

std::optional<simd::PanelStore> StageFinish::in_registers(int64_t block, const float* bias,
                                                          int64_t panel) const {
  if (!call_.stage->finish().is_simple() || !call_.kernel->stores || adds_rows())
    return std::nullopt;
  return place(block, bias, panel);
}

std::optional<simd::PanelStore> StageFinish::place(int64_t block, const float* bias,
                                                   int64_t panel) const {
  // One object, which is the result: to copy one that was written part by part stalls.
  std::optional<simd::PanelStore> made;
  const ChainStage::Finish& finish = call_.stage->finish();
  if (!finish.is_possible) return made;
  const int64_t column = block * columns_;
  simd::PanelStore& store = made.emplace();
  store.columns = std::min(columns_, weights_.n() - column);
  store.relu = finish.relu();
  bool fits = true;
  if (flow_.tiles.data != nullptr) {
    const int64_t at = column - flow_.column;
    fits = at % simd::kTileK + store.columns <= simd::kTileK;
    store.type = simd::FloatType::bf16;
    store.stride = simd::kTileK;
    store.out = flow_.tiles.pair(panel, at / simd::kTileK) + at % simd::kTileK;
  } else {
    const bool is_flow = flow_.is_there();
    const MatrixView& to = is_flow ? flow_.rows : call_.outputs[0];
    fits = to.dtype != DType::f16 && to.col_stride == 1;
    const int64_t row = (is_flow ? 0 : row_) + panel * simd::kTileBlock;
    store.type = float_type(to.dtype);
    store.stride = to.row_stride;
    store.out = static_cast<char*>(to.data) +
                (row * to.row_stride + column) * static_cast<int64_t>(size_of(store.type));
  }
  if (finish.has_bias && (finish.has_addend || !adds_rows())) {
    const MatrixView& operand = bias_operand();
    fits = fits && operand.row_stride == 0 && !has_levels(operand);
    store.bias = bias != nullptr ? bias : static_cast<const float*>(operand.data) + column;
  }
  if (!fits) made.reset();
  return made;
}

const uint16_t* StageFinish::rows_to_add(int64_t block, const simd::PanelStore& to,
                                         int64_t panel) const {
  if (!adds_rows() || flow_.is_there() || addend_->dtype != DType::bf16 ||
      addend_->col_stride != 1 || addend_->row_stride != to.stride || has_levels(*addend_))
    return nullptr;
  return static_cast<const uint16_t*>(addend_->data) +
         (row_ + panel * simd::kTileBlock) * to.stride + block * columns_;
}

const MatrixView& StageFinish::bias_operand() const {
  return call_.operands[static_cast<size_t>(call_.stage->spec().operands[0])];
}

bool StageFinish::widens_bias() const {
  if (!call_.stage->finish().has_bias) return false;
  if (!call_.kernel->stores && call_.kernel->tiles == nullptr) return false;
  const MatrixView& bias = bias_operand();
  return bias.row_stride == 0 && !has_levels(bias) &&
         (bias.dtype != DType::f32 || bias.col_stride != 1 || weights_.n() % columns_ != 0);
}

void StageFinish::widen_bias(int64_t first, int64_t last, float* memory) const {
  const int64_t columns = std::min(last * columns_, weights_.n()) - first * columns_;
  std::fill(memory + columns, memory + (last - first) * columns_, 0.0F);
  load_tile(bias_operand(), {0, 1, first * columns_, columns}, memory, (last - first) * columns_);
}

// How a block of sums becomes the chain's result in one pass, if all that is left to do is to add
// one operand.
std::optional<simd::WriteBack> StageFinish::write_back(const TileBounds& block) const {
  const ChainStage::Finish& finish = call_.stage->finish();
  if (!finish.is_simple() || finish.relu() || flow_.is_there()) return std::nullopt;
  const MatrixView& to = call_.outputs[0];
  if (!has_float_type(to.dtype) || to.col_stride != 1) return std::nullopt;
  simd::WriteBack out;
  out.out_type = float_type(to.dtype);
  out.out = to.data;
  out.out_row_stride = to.row_stride;
  if (finish.has_bias) {
    const MatrixView& operand = bias_operand();
    if (!has_float_type(operand.dtype) || has_levels(operand)) return std::nullopt;
    out.scale = 1;
    out.addend = operand.data;
    out.addend_type = float_type(operand.dtype);
    out.addend_row_stride = operand.row_stride;
    out.addend_col_stride = operand.col_stride;
  }
  return moved(out, block.row, block.column);
}

void StageFinish::rows(const ReadyRows& ready, float* memory) const {
  const int64_t column = ready.panel * columns_;
  const TileBounds block = {row_ + ready.row, ready.rows, column,
                            std::min(columns_, weights_.n() - column)};
  if (const auto to = write_back(block))
    return simd::write_back_kernels().rows(ready.sums[0], columns_, block.rows, block.columns, *to);
  const auto& operands = call_.stage->spec().operands;
  const TileBuffers tiles = {memory, most_rows_ * columns_, weights_.products(), ready.sums};
  for (size_t o = 0; o < operands.size(); ++o)
    load_tile(call_.operands[static_cast<size_t>(operands[o])], block,
              tiles[tiles.products + static_cast<int>(o)], columns_);
  program_.run(tiles, {block.rows, columns_}, simd::pointwise_kernels());
  for (size_t o = 0; o < program_.outputs(); ++o) store(o, block, tiles[program_.output(o).buffer]);
}

// Output o of the program: to the next stage's rows, or to an output of the chain.
void StageFinish::store(size_t o, const TileBounds& block, const float* tile) const {
  const RowChainSpec::Stage& spec = call_.stage->spec();
  const auto flows = static_cast<size_t>(spec.flows);
  if (o >= flows) {
    const auto output = static_cast<size_t>(spec.stores[o - flows]);
    if (program_.output(o).extent == Extent::column)
      return call_.sums[output].add(block, tile, columns_);
    return store_tile(call_.outputs[output], block, tile, columns_);
  }
  if (!flow_.is_there()) return store_tile(call_.outputs[0], block, tile, columns_);
  TileBounds place = block;
  place.row -= row_;
  place.column += static_cast<int64_t>(o) * weights_.n();
  if (flow_.tiles.data != nullptr) return store_tiled(place, tile);
  const MatrixView& rows = flow_.rows;
  if (rows.dtype != DType::bf16) return store_tile(rows, place, tile, columns_);
  // Only pairs kernels read bf16 rows.
  auto* const to = static_cast<uint16_t*>(rows.data);
  simd::round_to_bf16_rows(tile, columns_, to + place.row * rows.row_stride + place.column,
                           rows.row_stride, place.rows, place.columns);
}

// Rows of one panel of the flow's.
void StageFinish::store_tiled(const TileBounds& place, const float* tile) const {
  const int64_t column = place.column - flow_.column;
  for (int64_t j = 0; j < place.columns;) {
    const int64_t at = (column + j) % simd::kTileK;
    const int64_t n = std::min(simd::kTileK - at, place.columns - j);
    simd::round_to_bf16_rows(tile + j, columns_,
                             flow_.tiles.line(place.row, (column + j) / simd::kTileK) + at,
                             simd::kTileK, place.rows, n);
    j += n;
  }
}

}  // namespace epilogue::cpu
