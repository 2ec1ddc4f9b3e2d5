// SPDX-License-Identifier: Apache-2.0
// Attention of bf16 by tiles (simd/panels/attention_tiles.h):
//
//   threads take groups of blocks of queries of one item of the batch
//     pack its keys and values into tiles, unless this thread has them
//     for blocks of 32 queries           all of their keys, scores and sums in L1
//
// Blocks depend on nothing but the sizes, so that threads change no bit.
#include <algorithm>

#include "backend/cpu/attention/attention.h"
#include "backend/cpu/float_type.h"
#include "backend/cpu/simd/panels/pack_tiles.h"
#include "backend/cpu/simd/targets.h"
#include "backend/cpu/tile_io.h"
#include "base/ceil_div.h"
#include "base/machine.h"
#include "base/units.h"
#include "core/fused_call.h"

namespace epilogue::cpu {
namespace {

using simd::AttentionArgs;
using simd::AttentionTiles;
using simd::FloatType;
using simd::kQueryRows;
using simd::kScoreKeys;
using simd::kTileBlock;
using simd::kTilePairBytes;

constexpr float kLog2E = 1.44269504F;
// A score's share of the vectors' work, which the tiles' hides behind.
constexpr double kTileScoreNs = 0.15;
// Products of a block that wait for their turn, and tiles of a row's sums.
constexpr int64_t kMostDepth = 512;

thread_local simd::Scratch attention_tile_scratch;

class TileAttention final : public FusedKernel {
 public:
  TileAttention(const AttentionSpec& spec, simd::AttentionFunction function)
      : s_(spec), function_(function), blocks_(ceil_div(spec.queries, kQueryRows)) {}

  void run(int64_t /*rows*/, std::span<const MatrixView> operands,
           std::span<const MatrixView> results) const override {
    const uint64_t number = next_attention_run();
    const int count = threads();
    const MatrixView* const mask = s_.has_mask ? &operands[3] : nullptr;
    const KeyMask seen(s_, mask, kQueryRows, kScoreKeys, count);
    const int64_t groups = attention_groups(s_, blocks_, count);
    const auto body = [&](int64_t unit) {
      const int64_t item = unit / groups;
      const int64_t group = unit % groups;
      run_group({operands, results[0], seen, pack(operands, item, number)}, item,
                blocks_ * group / groups, blocks_ * (group + 1) / groups);
    };
    const int64_t units = s_.batch * groups;
    run_units(count, units, body);
  }

  KernelInfo info(int64_t /*rows*/, std::string_view ops) const override {
    KernelInfo info;
    info.name = fused_kernel_name("epi_amx", "attention", ops, s_.dtype);
    info.grid = {blocks_, s_.batch, 1};
    info.block = {std::min(s_.queries, kQueryRows), std::min(s_.keys, kScoreKeys), s_.depth};
    info.threads = threads();
    return info;
  }

  std::string describe(int64_t /*rows*/) const override {
    return "epi_amx_attention, " + std::to_string(s_.batch) + " x " + std::to_string(blocks_) +
           " x " + std::to_string(std::min(s_.queries, kQueryRows)) + " rows on " +
           std::to_string(threads()) + (threads() == 1 ? " thread, " : " threads, ") +
           format_bytes(static_cast<double>(scratch_bytes(0))) + " of scratch";
  }

  int64_t scratch_bytes(int64_t /*rows*/) const override {
    return (packed_floats() + block_floats()) * int64_t{sizeof(float)} * threads();
  }

  bool tune(const KernelTuning& tuning) override {
    one_thread_ = tuning.threads == 1;
    return one_thread_ || tuning == KernelTuning{};
  }

 private:
  struct Packed {
    const char* keys;
    const char* values;
  };
  struct Call {
    std::span<const MatrixView> operands;
    const MatrixView& out;
    const KeyMask& seen;
    Packed packed;
  };

  int64_t key_bytes() const { return AttentionTiles::key_bytes(s_.keys, s_.depth); }
  int64_t packed_floats() const {
    return (key_bytes() + AttentionTiles::value_bytes(s_.keys, s_.values)) / int64_t{sizeof(float)};
  }
  // The loops' memory, and where a mask's numbers are needed those of the blocks at work.
  int64_t work_floats() const {
    return ceil_div(AttentionTiles::floats(s_.depth, s_.values), 16) * 16;
  }
  int64_t block_floats() const {
    return work_floats() + (s_.has_mask ? AttentionArgs::kSlots * mask_floats() : 0);
  }

  int64_t mask_floats() const { return kQueryRows * AttentionTiles::padded_keys(s_.keys); }

  int threads() const {
    if (one_thread_) return 1;
    constexpr double kTileRate = 8;  // of f32's, at least
    return attention_threads(s_, s_.batch * blocks_, machine_rates().f32_flops_per_ns * kTileRate,
                             kTileScoreNs);
  }

  Packed pack(std::span<const MatrixView> operands, int64_t item, uint64_t run) const {
    const MatrixView& k = operands[1];
    const MatrixView& v = operands[2];
    const int64_t row = item / s_.group * s_.keys;
    const char* const keys = row_address(k, row);
    const char* const values = row_address(v, row);
    const PackedKeys::Place place = packed_keys().find(run, keys, values, packed_floats());
    auto* const key_tiles = reinterpret_cast<char*>(place.memory);
    char* const value_tiles = key_tiles + key_bytes();
    if (place.is_packed) return {key_tiles, value_tiles};
    const int64_t key_steps = AttentionTiles::steps_of(s_.depth);
    for (int64_t j = 0; j < s_.keys; j += kTileBlock)
      simd::pack_tile_block({simd::advance(keys, FloatType::bf16, j * k.row_stride),
                             FloatType::bf16, k.row_stride, k.col_stride},
                            std::min(kTileBlock, s_.keys - j), s_.depth, key_steps,
                            key_tiles + j / kTileBlock * key_steps * kTilePairBytes);
    const int64_t value_steps = AttentionTiles::steps_of(AttentionTiles::padded_keys(s_.keys));
    for (int64_t j = 0; j < s_.values; j += kTileBlock)
      simd::pack_tile_block({simd::advance(values, FloatType::bf16, j * v.col_stride),
                             FloatType::bf16, v.col_stride, v.row_stride},
                            std::min(kTileBlock, s_.values - j), s_.keys, value_steps,
                            value_tiles + j / kTileBlock * value_steps * kTilePairBytes);
    return {key_tiles, value_tiles};
  }

  // Blocks of queries [first, last) of one item.
  void run_group(const Call& call, int64_t item, int64_t first, int64_t last) const {
    const MatrixView& q = call.operands[0];
    float* const memory = attention_tile_scratch.get(static_cast<size_t>(block_floats()));
    const auto block_at = [&](int64_t i, int64_t slot) {
      simd::QueryBlock block;
      const int64_t row = (first + i) * kQueryRows;
      const int64_t of_all = item * s_.queries + row;
      block.queries = reinterpret_cast<const uint16_t*>(row_address(q, of_all));
      block.rows = std::min(kQueryRows, s_.queries - row);
      if (s_.causal) block.first_limit = row + 1;
      block.seen_blocks = call.seen.blocks(item, first + i);
      if (s_.has_mask)
        set_mask(call.operands[3], of_all, memory + work_floats() + slot * mask_floats(), block);
      block.out = reinterpret_cast<uint16_t*>(row_address(call.out, of_all));
      return block;
    };
    AttentionArgs args = {.blocks = last - first, .block = block_at};
    args.query_stride = q.row_stride;
    args.query_column = q.col_stride;
    args.depth = s_.depth;
    args.keys = call.packed.keys;
    args.values = call.packed.values;
    args.key_count = s_.keys;
    args.value_count = s_.values;
    args.scale = (s_.divides ? 1 / s_.scale : s_.scale) * kLog2E;
    args.out_stride = call.out.row_stride;
    args.empty_is_zero = s_.empty_is_zero;
    function_(args, memory);
  }

  // Bytes are read where they lie, if they lie in rows, else they are copied to `memory`; numbers
  // that are added are there as f32.
  void set_mask(const MatrixView& mask, int64_t row, float* memory, simd::QueryBlock& block) const {
    const int64_t stride = AttentionTiles::padded_keys(s_.keys);
    block.mask_stride = stride;
    if (mask.dtype != DType::boolean) {
      load_tile(mask, {row, block.rows, 0, s_.keys}, memory, stride);
      block.addend = memory;
      return;
    }
    const auto* const from = reinterpret_cast<const uint8_t*>(row_address(mask, row));
    if (mask.col_stride == 1) {
      block.seen = from;
      block.mask_stride = mask.row_stride;
      return;
    }
    auto* const bytes = reinterpret_cast<uint8_t*>(memory);
    for (int64_t i = 0; i < block.rows; ++i)
      for (int64_t j = 0; j < s_.keys; ++j)
        bytes[i * stride + j] = from[i * mask.row_stride + j * mask.col_stride];
    block.seen = bytes;
  }

  AttentionSpec s_;
  simd::AttentionFunction function_;
  int64_t blocks_;  // of one item
  bool one_thread_ = false;
};

}  // namespace

std::unique_ptr<FusedKernel> make_tile_attention(const AttentionSpec& spec) {
  const simd::AttentionFunction function = simd::tile_attention();
  if (function == nullptr || spec.dtype != DType::bf16 || !(spec.scale > 0)) return nullptr;
  if (std::max(spec.depth, spec.values) > kMostDepth) return nullptr;
  return std::make_unique<TileAttention>(spec, function);
}

}  // namespace epilogue::cpu
