// SPDX-License-Identifier: Apache-2.0
// Weights that are laid out once, as panels of columns.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/simd/panels/layout.h"
#include "backend/cpu/simd/panels/operand.h"
#include "backend/cpu/simd/panels/tile_blocks.h"
#include "base/large_memory.h"

namespace epilogue::simd {

// How several matrices share panels.
enum class Join : uint8_t {
  columns,  // each panel has the same columns of either: two products of the same rows
  depth,    // one above the other: one product of rows that are as long as both
};

// 4-bit weights as somebody else rounded them, [n][k] as nn.Linear holds them.
struct GroupedPart {
  const uint8_t* steps = nullptr;    // [n][(k + 1) / 2], the lower k in the lower half of a byte
  const uint16_t* scales = nullptr;  // [n][groups], of the format's type; the last may be short
  const uint8_t* zeros = nullptr;    // [n][groups]; null: kMiddleStep
  int64_t group = 0;                 // a multiple of the format's
};

// 8-bit weights as somebody else rounded them, likewise.
struct SteppedPart {
  const int8_t* steps = nullptr;  // [n][k]
  const float* scales = nullptr;  // [n]
};

// B [k, n] of one part.
struct PackedPart {
  GemmOperand b;
  int64_t k = 0;
  // Instead of b's values, which are not read then.
  const GroupedPart* grouped = nullptr;
  const SteppedPart* stepped = nullptr;
};

// One matrix, or two with as many columns, as panels.
class PackedWeights {
 public:
  // `parts` (one or two, any strides; of one depth where columns are joined) are read now and not
  // kept. `layout` is of a kernel that serves at the level in use. Panels that are not of integers
  // hold the values that they are rounded to. Packs on parallel_for's threads.
  // `memory`: where the panels go, bytes_of() of it, aligned to a cache line; null: into memory of
  // their own.
  PackedWeights(std::span<const PackedPart> parts, int64_t n, const PanelLayout& layout,
                Join join = Join::columns, const Rounding& rounding = {}, void* memory = nullptr);

  // What the panels of `products` matrices [k, n] with joined columns take. `groups`: of 4-bit
  // weights.
  static size_t bytes_of(const PanelLayout& layout, int64_t k, int64_t n, int products,
                         const GroupFormat& groups = {});

  // The same for parts of the same sizes and strides whose values changed, in the memory at hand:
  // new memory would cost as much as the copy. Not while a product reads the panels.
  void repack(std::span<const PackedPart> parts);

  int64_t k() const { return k_; }  // of a row of A
  int64_t padded_k() const { return padded_k_; }
  // k that a panel's unit holds: panel() and kernels begin and end at multiples of it.
  int64_t k_unit() const { return layout_.has_groups ? rounding_.groups.size : layout_.k_unit; }
  const GroupFormat& groups() const { return rounding_.groups; }
  int64_t n() const { return n_; }  // columns of each part
  int products() const { return products_; }
  const PanelLayout& layout() const { return layout_; }
  int64_t panels() const { return panels_; }
  // Columns of each product that a panel covers; the last one's may reach beyond n (zeros).
  int64_t columns_per_panel() const { return layout_.width / products_; }
  // From row `k` on (a multiple of k_unit()); of tiles in the first of a panel's two blocks.
  const void* panel(int64_t index, int64_t k) const;
  // Of layouts with tiles: all columns, from row `k` on.
  TiledColumns tiles(int64_t k) const {
    return {static_cast<const char*>(panel(0, k)), padded_k_ * kTileBlock * layout_.weight_bytes};
  }
  // Of so much of k of a panel.
  int64_t panel_bytes(int64_t k) const;
  // Of the columns of a panel; null where the layout has none.
  const float* scales(int64_t index) const;
  size_t bytes() const { return bytes_; }

 private:
  void copy_parts(std::span<const PackedPart> parts, int64_t index, int64_t rows, float* out) const;
  void pack_panel(std::span<const PackedPart> parts, int64_t index);
  void pack_steps(std::span<const PackedPart> parts, int64_t index, char* out);
  void pack_values(std::span<const PackedPart> parts, int64_t index, char* out);
  void pack_tiles(std::span<const PackedPart> parts, int64_t index, char* out) const;
  void tile_words(const float* words, char* out) const;
  void pack_groups(std::span<const PackedPart> parts, int64_t index, char* out) const;

  int64_t k_;
  int64_t n_;
  int products_;
  PanelLayout layout_;
  Rounding rounding_;
  int64_t panels_;
  int64_t padded_k_;
  size_t bytes_;
  LargeMemory memory_;  // null where the panels lie in somebody else's
  char* data_;
  std::vector<float> scales_;  // [panels][width]
};

}  // namespace epilogue::simd
