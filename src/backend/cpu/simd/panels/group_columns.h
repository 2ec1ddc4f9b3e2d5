// SPDX-License-Identifier: Apache-2.0
// Panels of 4-bit weights as tiles: each block of k of 32 columns is unpacked beside the products
// of the one before it, into one of two buffers that stay in the core's caches. All rows of a call
// share it.
//
//   values  bf16, the group's scale times each step in them, rounded once
//   pairs   integers as bf16, exact
//   bytes   integers of 8 bits that have one scale for kBytesK of k (i4_kernels.h)
//
// Integers leave the scales to the sums of a group (TileArgs::group_steps). They are unpacked in a
// quarter of the time, but each panel of rows then has sums to scale. Those of bytes are fewer.
// To be used where cpu_has(CpuFeature::avx512_bf16) only.
#pragma once

#include <array>
#include <cstdint>

#include "backend/cpu/simd/panels/i4_kernels.h"
#include "backend/cpu/simd/panels/tile_blocks.h"

namespace epilogue::simd {

enum class TileForm : uint8_t { values, pairs, bytes };

// The form of bf16 that is the faster for so many panels of 32 rows.
TileForm choose_pairs(const GroupFormat& format, int64_t panels);
// Of rows whose elements have so many bytes: how many steps of k a block of k is a multiple of,
// whatever the form.
int64_t group_unit(const GroupFormat& format, int64_t row_bytes);

// A tile's share of a panel: 16 columns, from a row of words on.
struct GroupTile {
  const uint16_t* scales = nullptr;
  const uint8_t* zeros = nullptr;  // null: kMiddleStep
  const uint32_t* words = nullptr;
  const uint32_t* ratios = nullptr;  // of bytes: the group's scale over theirs, per column
  const char* ahead = nullptr;       // words that are unpacked a block later; null: not known
  FloatType scale_type = FloatType::bf16;
};

class GroupColumns {
 public:
  // Blocks of weights at `panels`, which are `panel_bytes` each.
  GroupColumns(const GroupFormat& format, const void* panels, int64_t panel_bytes, int products,
               TileForm form);

  // Steps of k that a group's sums take in; 0: scales are in the tiles.
  int64_t group_steps() const {
    if (form_ == TileForm::bytes) return kBytesK / step_k_;
    return form_ == TileForm::values ? 0 : format_.size / step_k_;
  }
  // For blocks of k of `depth` steps.
  static int64_t floats(int64_t depth) {
    return depth * (kTileBuffers * kStepFloats + kScaleBuffers * kTileBlock);
  }
  void set_memory(float* memory, int64_t depth);

  // `unit` is unpacked by the pieces that follow, while `after` is fetched.
  void begin(const TileUnit& unit, const TileUnit& after);
  int64_t pieces() const { return left_; }
  void do_piece();

  // A block of k of 32 columns, step after step.
  struct Unpacked {
    const char* tiles;
    const float* scales;  // [groups][32], in the order of a block's sums
  };
  // What begin() asked for, after the pieces that are left. Tiles stay until the next finish(),
  // scales until the one after it.
  Unpacked finish();

 private:
  static constexpr int64_t kStepFloats = kTilePairBytes / int64_t{sizeof(float)};
  static constexpr int64_t kTileBuffers = 2;
  // The sums of a block's last group are scaled beside the products of the block after it, when the
  // one after that is unpacked.
  static constexpr int64_t kScaleBuffers = 3;

  // The first of two tiles from this k on; how many columns on the other begins.
  GroupTile tile_at(const TileUnit& unit, int64_t k) const;
  void move_beside(GroupTile& tile) const;
  void find_byte_scales(int64_t step);
  // The group of k, as its ratios count: from the first one of its scale on.
  int64_t ratio_of(int64_t k) const;
  void unpack_bytes_of(int64_t step, int64_t part, char* out);
  int64_t beside() const { return products_ == 1 ? kTileColumns : kTileBlock; }

  const GroupFormat format_;
  const char* const panels_;
  const int64_t panel_bytes_;
  const int products_;
  const TileForm form_;
  const int64_t step_k_;
  // Of a step. In one piece it would fill the reordering window, and the tiles wait.
  const int64_t pieces_;
  const int64_t end_k_;
  // Of bytes: [groups of kBytesK][32].
  alignas(64) std::array<uint32_t, kBytesK / 32 * kTileBlock> ratios_{};
  std::array<float*, kTileBuffers> tiles_{};
  std::array<float*, kScaleBuffers> scales_{};
  size_t tile_buffer_ = 0;
  size_t scale_buffer_ = 0;
  TileUnit unit_;
  TileUnit after_;
  int64_t left_ = 0;
};

}  // namespace epilogue::simd
