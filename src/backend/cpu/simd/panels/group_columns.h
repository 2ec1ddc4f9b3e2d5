// SPDX-License-Identifier: Apache-2.0
// Panels of 4-bit weights as tiles: each block of k of 32 columns is unpacked beside the products
// of the one before it, into one of two buffers that stay in the core's caches. All rows of a call
// share it.
//
//   values  bf16, the group's scale times each step in them, rounded once
//   pairs   integers as bf16, exact
//   quads   integers of 8 bits
//
// Integers leave the scales to the sums of a group (TileArgs::group_steps). They are unpacked in a
// quarter of the time, but each panel of rows then has sums to scale.
// To be used where cpu_has(CpuFeature::avx512_bf16) only.
#pragma once

#include <array>
#include <cstdint>

#include "backend/cpu/simd/panels/i4_kernels.h"
#include "backend/cpu/simd/panels/tile_blocks.h"

namespace epilogue::simd {

enum class TileForm : uint8_t { values, pairs, quads };

// The form of bf16 that is the faster for so many panels of 32 rows.
TileForm choose_pairs(const GroupFormat& format, int64_t panels);

// A tile's share of a panel: 16 columns, from a row of words on.
struct GroupTile {
  const uint16_t* scales;
  const uint8_t* zeros;  // null: kMiddleStep
  const uint32_t* words;
  const char* ahead;  // words that are unpacked a block later; null: not known
  FloatType scale_type;
};

class GroupColumns {
 public:
  // Blocks of weights at `panels`, which are `panel_bytes` each.
  GroupColumns(const GroupFormat& format, const void* panels, int64_t panel_bytes, int products,
               TileForm form);

  // Steps of k that a group's sums take in; 0: scales are in the tiles.
  int64_t group_steps() const { return form_ == TileForm::values ? 0 : format_.size / step_k_; }
  // For blocks of k of `depth` steps.
  static int64_t floats(int64_t depth) { return 2 * (depth * kStepFloats + depth * kTileBlock); }
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
  // What begin() asked for, after the pieces that are left. Until the next but one finish().
  Unpacked finish();

 private:
  static constexpr int64_t kStepFloats = kTilePairBytes / int64_t{sizeof(float)};

  // The first of a step's two tiles; how many columns on the other begins.
  GroupTile tile_at(const TileUnit& unit, int64_t step) const;
  int64_t beside() const { return products_ == 1 ? kTileColumns : kTileBlock; }

  const GroupFormat format_;
  const char* const panels_;
  const int64_t panel_bytes_;
  const int products_;
  const TileForm form_;
  const int64_t step_k_;
  std::array<float*, 2> tiles_{};
  std::array<float*, 2> scales_{};
  size_t buffer_ = 0;
  TileUnit unit_;
  TileUnit after_;
  int64_t left_ = 0;
};

}  // namespace epilogue::simd
