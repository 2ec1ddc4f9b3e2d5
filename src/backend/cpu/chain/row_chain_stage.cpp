// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/chain/row_chain_stage.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "backend/cpu/chain/stage_overlap.h"
#include "backend/cpu/chain/sum_depth.h"
#include "backend/cpu/float_type.h"
#include "backend/cpu/simd/panels/bf16_pairs.h"
#include "backend/cpu/simd/panels/write_back.h"
#include "backend/cpu/simd/reduce.h"
#include "backend/cpu/simd/scratch.h"
#include "backend/cpu/tile_io.h"
#include "epilogue/base/error.h"

namespace epilogue::cpu {
namespace {

using simd::FloatType;
using simd::PackedWeights;
using simd::PanelArgs;
using simd::PanelLayout;

// Depth of a chunk of k: with 64 columns 128 KiB (bf16) or 256 KiB (f32) of weights stay in L2
// while a block of rows passes.
constexpr int64_t kChunkK = 1024;
// Of every kernel's steps along k a multiple.
constexpr int64_t kChunkUnit = 32;
// A program's buffers stay within L1.
constexpr int64_t kStageTileBytes = 20 << 10;
constexpr int64_t kMaxTileRows = 48;

thread_local simd::Scratch stage_scratch;  // products, and the programs' buffers

// Of one product: v = v0 (+ v1, where there is an operand), relu(v) or not; v is stored.
ChainStage::Finish finish_of(const RowChainSpec::Stage& spec, int products) {
  const PointwiseProgram& program = spec.epilogue;
  if (products != 1 || spec.operands.size() > 1 || program.outputs.size() != 1 ||
      program.outputs[0] != (program.steps.empty() ? 0 : program.values() - 1))
    return {};
  ChainStage::Finish finish = {true, !spec.operands.empty(), false};
  int value = 0;
  size_t i = 0;
  if (finish.has_bias) {
    if (program.steps.empty()) return {};
    const PointwiseStep& add = program.steps[i++];
    const auto [a, b, rest] = add.operands;
    const bool is_sum = (a == 0 && b == 1) || (a == 1 && b == 0);
    if (add.fn != PointwiseFn::add || !is_sum || !add.has_default_parameters()) return {};
    value = program.inputs;
  }
  if (i < program.steps.size()) {
    const PointwiseStep& last = program.steps[i++];
    if (last.fn != PointwiseFn::relu || last.operands[0] != value) return {};
    finish.relu = true;
  }
  return i == program.steps.size() ? finish : ChainStage::Finish{};
}

// The loops of one call of run_stage().
class StageRun {
 public:
  StageRun(const StageCall& call, const StageTargets& targets, const StageRows& a, int64_t row,
           int64_t m)
      : call_(call),
        weights_(*call.weights),
        program_(call.stage->program()),
        targets_(targets),
        a_(a),
        row_(row),
        m_(m),
        each_(weights_.columns_per_panel()),
        two_sums_(weights_.layout().weight_bytes == 4 && m > 1 && m <= kFewChainRows),
        overlaps_(call.overlap_rows > 0 && m >= call.overlap_rows),
        tile_rows_(std::clamp<int64_t>(
            kStageTileBytes / (program_.buffers() * each_ * int64_t{sizeof(float)}), 1,
            kMaxTileRows)) {}

  void run(int64_t first, int64_t last) {
    const int64_t size = sums_floats();
    const int64_t chunk = even_piece(call_.padded_k, kChunkK, kChunkUnit);
    const int64_t chunks = (call_.padded_k + chunk - 1) / chunk;
    const int64_t kept = chunks == 1 ? 1 : last - first;  // panels whose sums wait for more of k
    const int64_t buffers = program_.buffers() * tile_rows_ * each_;
    const int64_t second = two_sums_ ? size : 0;
    const int64_t areas = overlaps_ ? StageOverlap::floats(each_, weights_.products()) : 0;
    const int64_t biases = widens_bias() ? (last - first) * each_ : 0;
    float* const memory =
        stage_scratch.get(static_cast<size_t>(kept * size + buffers + second + areas + biases));
    float* const bias = biases > 0 ? memory + kept * size + buffers + second + areas : nullptr;
    if (bias != nullptr) widen_bias(first, last, bias);
    float* const tiles = memory + kept * size;
    std::optional<StageOverlap> overlap;
    if (overlaps_)
      overlap.emplace(tiles + buffers + second, each_, weights_.products(), tile_rows_,
                      [this, tiles](const ReadyRows& rows) { finish_rows(rows, tiles); });
    for (int64_t k = 0; k < call_.padded_k; k += chunk) {
      const int64_t end = std::min(k + chunk, call_.padded_k);
      const bool is_last = end == call_.padded_k;
      const int64_t depth = depth_of_sums(end - k);
      for (int64_t panel = first; panel < last; ++panel) {
        float* const sums = memory + (chunks == 1 ? 0 : panel - first) * size;
        const std::optional<simd::PanelStore> store =
            is_last ? store_in_registers(panel,
                                         bias == nullptr ? nullptr : bias + (panel - first) * each_)
                    : std::nullopt;
        if (overlap) overlap->begin_panel(panel);
        multiply(panel, k, end, depth, after(panel, k, end, first, last),
                 {sums, tiles + buffers, 0, store ? &*store : nullptr,
                  is_last && overlap && !store ? &*overlap : nullptr});
        if (is_last && !store && !overlap) finish(panel, sums, tiles);
      }
    }
    if (overlap) overlap->end();
  }

  // Products over k in [begin, end) alone.
  void run_slice(int64_t begin, int64_t end, float* sums, int64_t panel_stride) const {
    float* const second = stage_scratch.get(static_cast<size_t>(two_sums_ ? sums_floats() : 0));
    const int64_t depth = depth_of_sums(end - begin);
    for (int64_t panel = 0; panel < weights_.panels(); ++panel)
      multiply(panel, begin, end, depth,
               panel + 1 < weights_.panels() ? weights_.panel(panel + 1, begin) : nullptr,
               {sums + panel * panel_stride, second, begin});
  }

  void finish_panel(int64_t panel, float* sums) const {
    const int64_t buffers = program_.buffers() * tile_rows_ * each_;
    finish(panel, sums, stage_scratch.get(static_cast<size_t>(buffers)));
  }

 private:
  // Where the kernel puts a panel's results, if it can do all that is left to do. `bias`: of its
  // columns, if it is not taken where it lies.
  std::optional<simd::PanelStore> store_in_registers(int64_t panel, const float* bias) const {
    const ChainStage::Finish& finish = call_.stage->finish();
    const bool is_flow = targets_.flow.data != nullptr;
    const MatrixView& to = is_flow ? targets_.flow : targets_.outputs[0];
    if (weights_.products() != 1 || !call_.kernel->stores || !finish.is_possible || two_sums_ ||
        to.dtype == DType::f16 || to.col_stride != 1)
      return std::nullopt;
    const int64_t column = panel * each_;
    const int64_t row = is_flow ? 0 : row_;
    simd::PanelStore store;
    store.type = float_type(to.dtype);
    store.stride = to.row_stride;
    store.out = static_cast<char*>(to.data) +
                (row * to.row_stride + column) * static_cast<int64_t>(size_of(store.type));
    store.columns = std::min(each_, weights_.n() - column);
    store.relu = finish.relu;
    if (!finish.has_bias) return store;
    const MatrixView& operand = bias_operand();
    if (operand.row_stride != 0 || has_levels(operand)) return std::nullopt;
    store.bias = bias != nullptr ? bias : static_cast<const float*>(operand.data) + column;
    return store;
  }

  const MatrixView& bias_operand() const {
    return targets_.operands[static_cast<size_t>(call_.stage->spec().operands[0])];
  }

  // Whether a bias must be made for whole panels in f32, once for all of a call's.
  bool widens_bias() const {
    if (!call_.stage->finish().has_bias || !call_.kernel->stores || weights_.products() != 1)
      return false;
    const MatrixView& bias = bias_operand();
    return bias.row_stride == 0 && !has_levels(bias) &&
           (bias.dtype != DType::f32 || bias.col_stride != 1 || weights_.n() % each_ != 0);
  }

  // Of panels [first, last), at `memory`.
  void widen_bias(int64_t first, int64_t last, float* memory) const {
    const int64_t columns = std::min(last * each_, weights_.n()) - first * each_;
    std::fill(memory + columns, memory + (last - first) * each_, 0.0F);
    load_tile(bias_operand(), {0, 1, first * each_, columns}, memory, (last - first) * each_);
  }

  struct Sums {
    float* data;
    float* second;    // as large, where two_sums_
    int64_t first_k;  // where they begin
    // Where the last ones go instead, if the kernel can do all that is left to do.
    const simd::PanelStore* store = nullptr;
    // Or what is done between the last ones.
    simd::PanelWork* work = nullptr;
  };

  // What run(first, last) reads after a panel's weights of k in [begin, end); at its own end what
  // the next call most likely begins with.
  const void* after(int64_t panel, int64_t begin, int64_t end, int64_t first, int64_t last) const {
    if (panel + 1 < last) return weights_.panel(panel + 1, begin);
    if (end < call_.padded_k) return weights_.panel(first, end);
    return last < weights_.panels() ? weights_.panel(last, 0) : nullptr;
  }

  int64_t sums_floats() const { return m_ * each_ * weights_.products(); }

  // How deep one sum goes where k is `length` long.
  int64_t depth_of_sums(int64_t length) const {
    return std::max<int64_t>(1, sum_depth(weights_, call_.kernel->lanes, m_, length));
  }

  // sums (+)= rows x panel over k in [begin, end), in sums of `sum`. `next`: weights to fetch
  // meanwhile, as many; null: none.
  void multiply(int64_t panel, int64_t begin, int64_t end, int64_t sum, const void* next,
                Sums sums) const {
    const int64_t bytes = weights_.layout().row_bytes;
    const int64_t step_bytes = weights_.layout().width * weights_.layout().weight_bytes;
    // Of one row of f32 the kernel ends its sums itself.
    const bool is_row = m_ == 1 && bytes == 4;
    const int64_t depth = is_row ? std::max<int64_t>(1, end - begin) : sum;
    PanelArgs args;
    args.m = m_;
    args.depth = sum;
    args.scales = weights_.scales(panel);
    args.row_scales = a_.scales;
    args.a_stride = a_.stride;
    const simd::PanelFunction function =
        weights_.products() == 2 ? call_.kernel->two : call_.kernel->one;
    bool is_second = false;
    for (int64_t k = begin; k < end; k += depth) {
      args.k = std::min(k + depth, end) - k;
      args.a = static_cast<const char*>(a_.data) + k * bytes;
      args.panel = weights_.panel(panel, k);
      args.next = next != nullptr && call_.prefetches
                      ? static_cast<const char*>(next) + (k - begin) * step_bytes
                      : nullptr;
      args.sums[0] = is_second ? sums.second : sums.data;
      args.sums[1] = args.sums[0] + m_ * each_;
      args.accumulate = is_second ? k > begin + depth : k > sums.first_k;
      if (k + depth >= end) {
        args.store = sums.store;
        args.work = sums.work;
      }
      function(args);
      is_second = two_sums_ && !is_second;
    }
    if (two_sums_ && end - begin > depth)
      simd::row_kernels().accumulate(sums.second, sums.data, static_cast<size_t>(sums_floats()));
  }

  // The program over one panel's sums, as many rows at a time as stay in L1, and the stores.
  void finish(int64_t panel, float* sums, float* memory) const {
    for (int64_t i = 0; i < m_; i += tile_rows_)
      finish_rows(
          {panel, i, std::min(tile_rows_, m_ - i), {sums + i * each_, sums + (m_ + i) * each_}},
          memory);
  }

  // How a block of sums becomes the chain's result in one pass, if all that is left to do is to add
  // one operand.
  std::optional<simd::WriteBack> write_back(const TileBounds& block) const {
    const ChainStage::Finish& finish = call_.stage->finish();
    if (weights_.products() != 1 || !finish.is_possible || finish.relu ||
        targets_.flow.data != nullptr)
      return std::nullopt;
    const MatrixView& to = targets_.outputs[0];
    if (!has_float_type(to.dtype) || to.col_stride != 1) return std::nullopt;
    simd::WriteBack out;
    out.out_type = float_type(to.dtype);
    out.out = to.data;
    out.out_row_stride = to.row_stride;
    if (finish.has_bias) {
      const MatrixView& operand =
          targets_.operands[static_cast<size_t>(call_.stage->spec().operands[0])];
      if (!has_float_type(operand.dtype) || has_levels(operand)) return std::nullopt;
      out.scale = 1;
      out.addend = operand.data;
      out.addend_type = float_type(operand.dtype);
      out.addend_row_stride = operand.row_stride;
      out.addend_col_stride = operand.col_stride;
    }
    return moved(out, block.row, block.column);
  }

  // The same for some of them, tile_rows_ at most.
  void finish_rows(const ReadyRows& ready, float* memory) const {
    const int64_t column = ready.panel * each_;
    const TileBounds block = {row_ + ready.row, ready.rows, column,
                              std::min(each_, weights_.n() - column)};
    if (const auto to = write_back(block))
      return simd::write_back_kernels().rows(ready.sums[0], each_, block.rows, block.columns, *to);
    const auto& operands = call_.stage->spec().operands;
    const TileBuffers tiles = {memory, tile_rows_ * each_, weights_.products(), ready.sums};
    for (size_t o = 0; o < operands.size(); ++o)
      load_tile(targets_.operands[static_cast<size_t>(operands[o])], block,
                tiles[tiles.products + static_cast<int>(o)], each_);
    program_.run(tiles, {block.rows, each_}, simd::pointwise_kernels());
    for (size_t o = 0; o < program_.outputs(); ++o)
      store(o, block, tiles[program_.output(o).buffer]);
  }

  // Output o of the program: to the next stage's rows, or to an output of the chain.
  void store(size_t o, const TileBounds& block, const float* tile) const {
    const RowChainSpec::Stage& spec = call_.stage->spec();
    const auto flows = static_cast<size_t>(spec.flows);
    if (o >= flows) {
      const auto output = static_cast<size_t>(spec.stores[o - flows]);
      if (program_.output(o).extent == Extent::column)
        return targets_.sums[output].add(block, tile, each_);
      return store_tile(targets_.outputs[output], block, tile, each_);
    }
    TileBounds place = block;
    if (targets_.flow.data == nullptr) return store_tile(targets_.outputs[0], block, tile, each_);
    place.row -= row_;
    place.column += static_cast<int64_t>(o) * weights_.n();
    if (targets_.flow.dtype != DType::bf16) return store_tile(targets_.flow, place, tile, each_);
    // Only pairs kernels read bf16 rows.
    auto* const to = static_cast<uint16_t*>(targets_.flow.data);
    simd::round_to_bf16_rows(tile, each_, to + place.row * targets_.flow.row_stride + place.column,
                             targets_.flow.row_stride, place.rows, place.columns);
  }

  const StageCall& call_;
  const PackedWeights& weights_;
  const TileProgram& program_;
  const StageTargets& targets_;
  const StageRows a_;
  const int64_t row_;
  const int64_t m_;
  const int64_t each_;  // columns of a panel, of each product
  // Chunks of k are added to two arrays in turn: half as many additions one by one.
  const bool two_sums_;
  // Programs run between the products of the block after theirs.
  const bool overlaps_;
  // As many rows as leave all buffers of the program in L1.
  const int64_t tile_rows_;
};

}  // namespace

ChainStage::ChainStage(const RowChainSpec::Stage& spec, DType dtype, bool is_last, size_t outputs)
    : spec_(spec), program_(spec.epilogue) {
  const auto fail = [](const std::string& what) { throw Error("[row chain] expected " + what); };
  if (spec.weights.empty() || spec.weights.size() > 2)
    fail("one or two weights, got " + std::to_string(spec.weights.size()));
  for (const Tensor& w : spec.weights) {
    if (w.dim() != 2 || w.dtype() != dtype || w.size(0) != n() ||
        (!spec.stacked && w.size(1) != spec.weights[0].size(1)))
      fail("weights of one shape and dtype, got " + to_string(w));
    k_ = spec.stacked ? k_ + w.size(1) : w.size(1);
  }
  const auto inputs = products() + static_cast<int>(spec.operands.size());
  const size_t results = static_cast<size_t>(spec.flows) + spec.stores.size();
  if (spec.epilogue.inputs != inputs || spec.epilogue.outputs.size() != results)
    fail("a program of " + std::to_string(inputs) + " inputs and " + std::to_string(results) +
         " outputs, got " + to_string(spec.epilogue));
  if (program_.has_row_reductions())
    fail("a program that needs no whole rows, got " + to_string(spec.epilogue));
  for (size_t o = 0; o < static_cast<size_t>(std::max(spec.flows, 0)); ++o)
    if (program_.output(o).extent != Extent::element)
      fail("column sums among the stores, got " + to_string(spec.epilogue));
  if (spec.flows < 1 || (is_last && spec.flows != 1))
    fail("one result of the last stage, got " + std::to_string(spec.flows));
  for (const int o : spec.stores)
    if (o < 1 || static_cast<size_t>(o) >= outputs)
      fail("stores among outputs 1 to " + std::to_string(outputs - 1) + ", got " +
           std::to_string(o));
  finish_ = finish_of(spec, products());
}

FloatType ChainStage::weights_type() const { return float_type(spec_.weights[0].dtype()); }

const PackedWeights& ChainStage::packed(const PanelLayout& layout,
                                        simd::Precision precision) const {
  const auto* const known =
      packed_.find([&](const auto& panels) { return panels->layout() == layout; });
  if (known != nullptr) return (*known)->current();
  const auto join = spec_.stacked ? simd::Join::depth : simd::Join::columns;
  return packed_.push(share_panels(spec_.weights, layout, join, precision))->current();
}

void run_stage(const StageCall& call, const StageTargets& targets, const StageRows& a, int64_t row,
               int64_t m, int64_t first, int64_t last) {
  StageRun(call, targets, a, row, m).run(first, last);
}

void multiply_slice(const StageCall& call, const StageRows& a, int64_t m, int64_t begin,
                    int64_t end, float* sums, int64_t panel_stride) {
  StageRun(call, {}, a, 0, m).run_slice(begin, end, sums, panel_stride);
}

void finish_panel(const StageCall& call, const StageTargets& targets, int64_t row, int64_t m,
                  int64_t panel, float* sums) {
  StageRun(call, targets, {}, row, m).finish_panel(panel, sums);
}

}  // namespace epilogue::cpu
