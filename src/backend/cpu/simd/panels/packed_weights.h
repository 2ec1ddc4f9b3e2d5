// SPDX-License-Identifier: Apache-2.0
// Weights that are laid out once, as panels of columns.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/simd/panels/layout.h"
#include "backend/cpu/simd/panels/operand.h"
#include "base/large_memory.h"

namespace epilogue::simd {

// How several matrices share panels.
enum class Join : uint8_t {
  columns,  // each panel has the same columns of either: two products of the same rows
  depth,    // one above the other: one product of rows that are as long as both
};

// B [k, n] of one part.
struct PackedPart {
  GemmOperand b;
  int64_t k = 0;
};

// One matrix, or two with as many columns, as panels.
class PackedWeights {
 public:
  // `parts` (one or two, any strides; of one depth where columns are joined) are read now and not
  // kept. `layout` is of a kernel that serves at the level in use. Panels that are not of 8-bit
  // integers hold the values that Precision::i8 rounds to. Packs on parallel_for's threads.
  // `memory`: where the panels go, bytes_of() of it, aligned to a cache line; null: into memory of
  // their own.
  PackedWeights(std::span<const PackedPart> parts, int64_t n, const PanelLayout& layout,
                Join join = Join::columns, Precision precision = Precision::same,
                void* memory = nullptr);

  // What the panels of `products` matrices [k, n] with joined columns take.
  static size_t bytes_of(const PanelLayout& layout, int64_t k, int64_t n, int products);

  // The same for parts of the same sizes and strides whose values changed, in the memory at hand:
  // new memory would cost as much as the copy. Not while a product reads the panels.
  void repack(std::span<const PackedPart> parts);

  int64_t k() const { return k_; }  // of a row of A
  int64_t n() const { return n_; }  // columns of each part
  int products() const { return products_; }
  const PanelLayout& layout() const { return layout_; }
  int64_t panels() const { return panels_; }
  // Columns of each product that a panel covers; the last one's may reach beyond n (zeros).
  int64_t columns_per_panel() const { return layout_.width / products_; }
  // From row `k` on (a multiple of the layout's k_unit).
  const void* panel(int64_t index, int64_t k) const;
  // Of the columns of a panel; null where the layout has none.
  const float* scales(int64_t index) const;
  size_t bytes() const { return bytes_; }

 private:
  void copy_parts(std::span<const PackedPart> parts, int64_t index, int64_t rows, float* out) const;
  void pack_panel(std::span<const PackedPart> parts, int64_t index);

  int64_t k_;
  int64_t n_;
  int products_;
  PanelLayout layout_;
  Precision precision_;
  int64_t panels_;
  int64_t padded_k_;
  size_t bytes_;
  LargeMemory memory_;  // null where the panels lie in somebody else's
  char* data_;
  std::vector<float> scales_;  // [panels][width]
};

}  // namespace epilogue::simd
