// SPDX-License-Identifier: Apache-2.0
// Products with weights that are laid out once: panels of columns, and the micro-kernels over them.
//
// A panel holds `width` columns of B, [k][width], so that a micro-kernel streams it. With two parts
// (the gate and up projections of an MLP) each panel has half of its columns from either: one pass
// over A then yields both, side by side, for the epilogue that joins them.
#pragma once

#include <cstdint>
#include <span>

#include "backend/cpu/simd/convert.h"
#include "backend/cpu/simd/gemm.h"
#include "base/large_memory.h"

namespace epilogue::simd {

// What panels store. It decides the type of A's rows and which micro-kernel runs.
enum class PanelType : uint8_t {
  f32,         // A is f32
  bf16,        // widened as it is read; A is f32. Half the bytes: for few rows
  bf16_pairs,  // [k / 2][width][2] for the dot-product and tile instructions; A is bf16
};
inline constexpr size_t kPanelTypes = 3;

// The panels to use for weights of this type and about so many rows of A, at the level in use.
PanelType choose_panel_type(FloatType weights, int64_t rows);

// The element type that A's rows must have.
constexpr FloatType rows_type(PanelType type) {
  return type == PanelType::bf16_pairs ? FloatType::bf16 : FloatType::f32;
}

// A product of a block of rows with one panel: sums[i][j] = a[i][:] . b[:][j], f32.
struct PanelArgs {
  int64_t m = 0;            // rows, any number
  int64_t k = 0;            // of this chunk; for bf16_pairs a multiple of the layout's pairs_k
  const void* a = nullptr;  // rows_type(), k contiguous
  int64_t a_stride = 0;     // between rows, in elements
  const void* panel = nullptr;
  const void* next = nullptr;  // what comes after this panel, as large; fetched meanwhile
  float* sums[2] = {};         // one array [m][width], or two of [m][width / 2]
  // Add to what is there, a later chunk of k: the chunk is summed by itself first, so that long
  // sums do not lose what short ones keep.
  bool accumulate = false;
};
using PanelKernel = void (*)(const PanelArgs& args);

// What panels look like at the level in use.
struct PackedLayout {
  int64_t width = 0;    // columns of a panel
  int64_t pairs_k = 2;  // bf16_pairs: k is padded with zeros to a multiple of it
  bool operator==(const PackedLayout&) const = default;
};

struct PackedKernels {
  const char* target;  // Highway's name of the instruction set
  int64_t mr;          // rows that a micro-kernel computes at once
  PackedLayout layout;
  // By PanelType; null where the level in use cannot run it. One part, two parts.
  PanelKernel one[kPanelTypes];
  PanelKernel two[kPanelTypes];
};
PackedKernels packed_kernels();

// Panels for rows of k elements hold so many.
int64_t padded_depth(int64_t k, PanelType type, const PackedLayout& layout);

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
  // kept. Packs on parallel_for's threads.
  PackedWeights(std::span<const PackedPart> parts, int64_t n, PanelType type,
                const PackedLayout& layout, Join join = Join::columns);

  int64_t k() const { return k_; }  // of a row of A
  int64_t n() const { return n_; }  // columns of each part
  int products() const { return products_; }
  PanelType type() const { return type_; }
  int64_t panels() const { return panels_; }
  // Columns of each product that a panel covers; the last one's may reach beyond n (zeros).
  int64_t columns_per_panel() const { return width_ / products_; }
  // From row `k` on (a multiple of the layout's pairs_k for bf16_pairs).
  const void* panel(int64_t index, int64_t k) const;
  size_t bytes() const { return bytes_; }

 private:
  void copy_parts(std::span<const PackedPart> parts, int64_t index, int64_t rows, float* out) const;
  void pack_panel(std::span<const PackedPart> parts, int64_t index);

  int64_t k_;
  int64_t n_;
  int products_;
  PanelType type_;
  int64_t width_;
  int64_t panels_;
  int64_t padded_k_;
  size_t bytes_;
  LargeMemory memory_;
};

}  // namespace epilogue::simd
